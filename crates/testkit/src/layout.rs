//! Files and ports of one control plane, and the command lines of its components.

use std::{
    fs,
    path::{Path, PathBuf},
};

use crate::{
    assets::Assets,
    error::Error,
    kubelets,
    options::{Component, Options},
    pki::{Authority, Identity, Proof, kubeconfig, token_key, write_secret},
    ports,
    process::Recipe,
};

/// The Service range; nothing routes there.
const SERVICE_RANGE: &str = "10.96.0.0/16";
/// The first address of that range: the API server's Service.
const SERVICE_ADDRESS: &str = "10.96.0.1";

/// Ports of one attempt to start.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Ports {
    etcd: u16,
    etcd_peer: u16,
    api_server: u16,
    pub(crate) scheduler: u16,
}

impl Ports {
    pub(crate) fn draw() -> Result<Self, Error> {
        Ok(Self {
            etcd: ports::free()?,
            etcd_peer: ports::free()?,
            api_server: ports::free()?,
            scheduler: ports::free()?,
        })
    }
}

/// Keys, certificates and paths, created once per control plane; ports are drawn again if another process took one.
#[derive(Debug)]
pub(crate) struct Layout {
    pub(crate) folder: PathBuf,
    pub(crate) authority: Authority,
    pub(crate) admin: Identity,
    pub(crate) ports: Ports,
    assets: Assets,
}

impl Layout {
    /// Creates the files that don't depend on ports.
    pub(crate) fn new(folder: PathBuf, assets: Assets, options: &Options) -> Result<Self, Error> {
        for part in ["pki", "logs", "kubeconfig", "etcd"] {
            let path = folder.join(part);
            fs::create_dir_all(&path).map_err(Error::io(format!("make the folder {}", path.display())))?;
        }
        let authority = Authority::new("croft-lab-ca")?;
        let layout = Self {
            admin: authority.client("lab:admin", &["system:masters"])?,
            authority,
            ports: Ports::draw()?,
            assets,
            folder,
        };
        write_secret(&layout.pki("ca.crt"), layout.authority.certificate())?;
        write_secret(&layout.pki("ca.key"), layout.authority.key())?;
        let address = options.address.map(|address| address.to_string());
        let mut names = vec!["kubernetes", "kubernetes.default", "kubernetes.default.svc", SERVICE_ADDRESS];
        names.extend(address.as_deref());
        for (name, identity) in [
            ("etcd", layout.authority.server("etcd", &[])?),
            ("etcd-client", layout.authority.client("kube-apiserver", &[])?),
            ("kubelet-client", layout.authority.client("kube-apiserver", &["system:masters"])?),
            ("api-server", layout.authority.server("kube-apiserver", &names)?),
            ("scheduler", layout.authority.server("kube-scheduler", &[])?),
        ] {
            write_secret(&layout.pki(&format!("{name}.crt")), &identity.certificate)?;
            write_secret(&layout.pki(&format!("{name}.key")), &identity.key)?;
        }
        let (private, public) = token_key()?;
        write_secret(&layout.pki("tokens.key"), &private)?;
        write_secret(&layout.pki("tokens.pub"), &public)?;
        write_secret(&layout.folder.join("kubelets.yaml"), kubelets::CONFIGURATION)?;
        Ok(layout)
    }

    /// The API server's address.
    pub(crate) fn url(&self) -> String {
        format!("https://127.0.0.1:{}", self.ports.api_server)
    }

    /// The folder of etcd's data.
    pub(crate) fn etcd_data(&self) -> PathBuf {
        self.folder.join("etcd")
    }

    pub(crate) fn etcd_port(&self) -> u16 {
        self.ports.etcd
    }

    pub(crate) fn pki(&self, file: &str) -> PathBuf {
        self.folder.join("pki").join(file)
    }

    pub(crate) fn log(&self, name: &str) -> PathBuf {
        self.folder.join("logs").join(format!("{name}.log"))
    }

    pub(crate) fn admin_kubeconfig(&self) -> PathBuf {
        self.folder.join("kubeconfig/admin")
    }

    pub(crate) fn kubectl(&self) -> Result<PathBuf, Error> {
        self.assets.binary("kubectl")
    }

    /// Writes the kubeconfigs that the components themselves use, with the current port.
    pub(crate) fn write_kubeconfigs(&self) -> Result<(), Error> {
        self.write_kubeconfig("lab:admin", &Proof::Certificate(&self.admin), &self.admin_kubeconfig())?;
        for user in ["system:kube-controller-manager", "system:kube-scheduler", kubelets::USER] {
            let identity = self.authority.client(user, &[])?;
            self.write_kubeconfig(user, &Proof::Certificate(&identity), &self.kubeconfig_of(user))?;
        }
        Ok(())
    }

    /// Path of the kubeconfig of `user`.
    pub(crate) fn kubeconfig_of(&self, user: &str) -> PathBuf {
        let file: String = user
            .chars()
            .map(|c| if c.is_ascii_alphanumeric() || c == '-' || c == '.' { c } else { '_' })
            .collect();
        self.folder.join("kubeconfig").join(file)
    }

    /// Writes a kubeconfig for `user` to `path`, as JSON, which is YAML too.
    pub(crate) fn write_kubeconfig(&self, user: &str, proof: &Proof<'_>, path: &Path) -> Result<(), Error> {
        self.write_kubeconfig_to(&self.url(), user, proof, path)
    }

    /// [`Layout::write_kubeconfig`] with the API server at `url`.
    pub(crate) fn write_kubeconfig_to(
        &self,
        url: &str,
        user: &str,
        proof: &Proof<'_>,
        path: &Path,
    ) -> Result<(), Error> {
        let config = kubeconfig(url, self.authority.certificate(), user, proof);
        let text = serde_json::to_string_pretty(&config)
            .map_err(|error| Error::Client { name: user.to_owned(), reason: error.to_string() })?;
        write_secret(path, &text)
    }

    /// The command of `component`.
    pub(crate) fn recipe(&self, component: Component, options: &Options) -> Result<Recipe, Error> {
        let name = component.binary();
        let arguments = match component {
            Component::Etcd => self.etcd(),
            Component::ApiServer => self.api_server(options),
            Component::ControllerManager => self.controller_manager(options),
            Component::Scheduler => self.scheduler(options),
            Component::Kubelets => vec![
                flag("config", self.folder.join("kubelets.yaml")),
                flag("kubeconfig", self.kubeconfig_of(kubelets::USER)),
                "--node-ip=127.0.0.1".to_owned(),
            ],
        };
        let extra = options.flags.iter().filter(|(of, _)| *of == component).map(|(_, flag)| flag.clone());
        Ok(Recipe::new(name, self.assets.binary(name)?, self.log(name))
            .arguments(arguments.into_iter().chain(extra)))
    }

    fn etcd(&self) -> Vec<String> {
        let client = format!("https://127.0.0.1:{}", self.ports.etcd);
        let peer = format!("https://127.0.0.1:{}", self.ports.etcd_peer);
        vec![
            "--name=lab".to_owned(),
            flag("data-dir", self.etcd_data()),
            format!("--listen-client-urls={client}"),
            format!("--advertise-client-urls={client}"),
            format!("--listen-peer-urls={peer}"),
            format!("--initial-advertise-peer-urls={peer}"),
            format!("--initial-cluster=lab={peer}"),
            "--client-cert-auth=true".to_owned(),
            flag("trusted-ca-file", self.pki("ca.crt")),
            flag("cert-file", self.pki("etcd.crt")),
            flag("key-file", self.pki("etcd.key")),
            "--peer-client-cert-auth=true".to_owned(),
            flag("peer-trusted-ca-file", self.pki("ca.crt")),
            flag("peer-cert-file", self.pki("etcd.crt")),
            flag("peer-key-file", self.pki("etcd.key")),
            // The data survives the process (also kill -9), not the computer, which is enough here.
            "--unsafe-no-fsync=true".to_owned(),
            "--log-level=warn".to_owned(),
        ]
    }

    fn api_server(&self, options: &Options) -> Vec<String> {
        let mut flags = vec![
            format!("--etcd-servers=https://127.0.0.1:{}", self.ports.etcd),
            flag("etcd-cafile", self.pki("ca.crt")),
            flag("etcd-certfile", self.pki("etcd-client.crt")),
            flag("etcd-keyfile", self.pki("etcd-client.key")),
            format!("--secure-port={}", self.ports.api_server),
            format!("--service-cluster-ip-range={SERVICE_RANGE}"),
            flag("cert-dir", self.folder.join("pki")),
            flag("tls-cert-file", self.pki("api-server.crt")),
            flag("tls-private-key-file", self.pki("api-server.key")),
            flag("client-ca-file", self.pki("ca.crt")),
            "--service-account-issuer=https://kubernetes.default.svc".to_owned(),
            flag("service-account-key-file", self.pki("tokens.pub")),
            flag("service-account-signing-key-file", self.pki("tokens.key")),
            "--authorization-mode=Node,RBAC".to_owned(),
            "--enable-admission-plugins=NodeRestriction".to_owned(),
            "--allow-privileged=true".to_owned(),
            "--profiling=false".to_owned(),
        ];
        match options.address {
            Some(address) => flags.extend([
                "--bind-address=0.0.0.0".to_owned(),
                format!("--advertise-address={address}"),
                "--endpoint-reconciler-type=lease".to_owned(),
                // For logs, exec and forwarded ports. No server resolves the names of nodes.
                "--kubelet-preferred-address-types=InternalIP".to_owned(),
                flag("kubelet-client-certificate", self.pki("kubelet-client.crt")),
                flag("kubelet-client-key", self.pki("kubelet-client.key")),
            ]),
            // Endpoints may not be loopback addresses, and no client uses the Service.
            None => flags.extend([
                "--bind-address=127.0.0.1".to_owned(),
                "--endpoint-reconciler-type=none".to_owned(),
            ]),
        }
        flags
    }

    fn controller_manager(&self, options: &Options) -> Vec<String> {
        let kubeconfig = self.kubeconfig_of("system:kube-controller-manager");
        let mut flags = vec![
            flag("kubeconfig", kubeconfig),
            "--leader-elect=false".to_owned(),
            // Its metrics aren't read, and fewer ports collide less.
            "--secure-port=0".to_owned(),
            "--use-service-account-credentials=true".to_owned(),
            flag("service-account-private-key-file", self.pki("tokens.key")),
            flag("root-ca-file", self.pki("ca.crt")),
            flag("cluster-signing-cert-file", self.pki("ca.crt")),
            flag("cluster-signing-key-file", self.pki("ca.key")),
        ];
        flags.extend(rates(options));
        flags
    }

    fn scheduler(&self, options: &Options) -> Vec<String> {
        let kubeconfig = self.kubeconfig_of("system:kube-scheduler");
        let mut flags = vec![
            flag("kubeconfig", &kubeconfig),
            flag("authentication-kubeconfig", &kubeconfig),
            flag("authorization-kubeconfig", &kubeconfig),
            "--leader-elect=false".to_owned(),
            "--bind-address=127.0.0.1".to_owned(),
            format!("--secure-port={}", self.ports.scheduler),
            flag("tls-cert-file", self.pki("scheduler.crt")),
            flag("tls-private-key-file", self.pki("scheduler.key")),
        ];
        flags.extend(rates(options));
        flags
    }
}

fn flag(name: &str, path: impl AsRef<Path>) -> String {
    format!("--{name}={}", path.as_ref().display())
}

fn rates(options: &Options) -> impl Iterator<Item = String> {
    options.requests_per_second.into_iter().flat_map(|rate| {
        [format!("--kube-api-qps={rate}"), format!("--kube-api-burst={}", rate.saturating_mul(2))]
    })
}
