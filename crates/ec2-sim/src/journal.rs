//! State that outlives the process: every call and control request with its time, written before it takes effect.
//!
//! The same calls at the same times give the same [`World`](crate::world::World), so a simulator that was killed
//! restarts with its instances, as EC2 would have kept them. A truncated last line belongs to a call that had no
//! effect.

use std::{
    fs::{File, OpenOptions},
    io::{Read as _, Seek as _, SeekFrom, Write as _},
    path::{Path, PathBuf},
};

use serde::{Deserialize, Serialize};

use crate::{answer::Call, control::Control};

/// One event, with its time in milliseconds since 1970.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) enum Entry {
    /// The start of the world.
    Begun(u64),
    /// A call came.
    Call(u64, Call),
    /// A control request.
    Control(u64, Control),
}

/// Errors of this module.
#[derive(Debug, thiserror::Error)]
pub enum JournalError {
    /// The file can't be read or written.
    #[error("failed to {what} the journal {}: {source}", path.display())]
    Io {
        /// The attempted call.
        what: &'static str,
        /// The file.
        path: PathBuf,
        /// The cause.
        source: std::io::Error,
    },
    /// The file isn't a journal.
    #[error("failed to read line {line} of the journal {}: {source}", path.display())]
    Line {
        /// The file.
        path: PathBuf,
        /// The line, from 1.
        line: usize,
        /// The cause.
        source: serde_json::Error,
    },
    /// A recorded request is no longer valid.
    #[error("failed to repeat what the journal {} says: {source}", path.display())]
    Policy {
        /// The file.
        path: PathBuf,
        /// The cause.
        source: crate::policy::PolicyError,
    },
}

/// The file.
#[derive(Debug)]
pub(crate) struct Journal {
    file: File,
    path: PathBuf,
}

impl Journal {
    /// Opens or creates the file, and reads it.
    pub(crate) fn open(path: &Path) -> Result<(Self, Vec<Entry>), JournalError> {
        let failed = |what| move |source| JournalError::Io { what, path: path.to_owned(), source };
        let mut file = OpenOptions::new()
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .open(path)
            .map_err(failed("open"))?;
        let mut text = Vec::new();
        file.read_to_end(&mut text).map_err(failed("read"))?;
        let whole = text.iter().rposition(|byte| *byte == b'\n').map_or(0, |end| end + 1);
        file.set_len(whole as u64).map_err(failed("shorten"))?;
        file.seek(SeekFrom::End(0)).map_err(failed("write"))?;
        let lines = text.get(..whole).unwrap_or_default().split(|byte| *byte == b'\n');
        let entries = lines
            .enumerate()
            .filter(|(_, line)| !line.is_empty())
            .map(|(n, line)| {
                serde_json::from_slice(line).map_err(|source| JournalError::Line {
                    path: path.to_owned(),
                    line: n + 1,
                    source,
                })
            })
            .collect::<Result<_, _>>()?;
        Ok((Self { file, path: path.to_owned() }, entries))
    }

    /// Appends a line in one write.
    pub(crate) fn write(&mut self, entry: &Entry) -> Result<(), JournalError> {
        let failed = |source| JournalError::Io { what: "write", path: self.path.clone(), source };
        let mut line = serde_json::to_vec(entry).map_err(|error| failed(error.into()))?;
        line.push(b'\n');
        self.file.write_all(&line).map_err(failed)
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;

    use serde_json::Value;

    use super::*;
    use crate::{
        answer::{Answer, Service},
        params::Params,
        server::{Remembering, Simulator},
        world::{Happening, Settings},
    };

    fn ask(simulator: &Simulator, action: &str, pairs: &[(&str, &str)]) -> String {
        let call = Call {
            service: Service::Ec2,
            action: action.to_owned(),
            params: Params::new(pairs.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned()))),
            json: Value::Null,
            access_key: "test".to_owned(),
        };
        match simulator.call(&call).0 {
            Answer::Xml(text) => text,
            other => panic!("{action}: {other:?}"),
        }
    }

    fn between<'a>(text: &'a str, before: &str) -> &'a str {
        text.split(before)
            .nth(1)
            .unwrap_or_else(|| panic!("no {before} in {text}"))
            .split('<')
            .next()
            .unwrap()
    }

    fn launch(simulator: &Simulator) -> String {
        let fleet = [
            ("Type", "instant"),
            ("ClientToken", "once"),
            ("TargetCapacitySpecification.TotalTargetCapacity", "1"),
            ("LaunchTemplateConfigs.1.LaunchTemplateSpecification.LaunchTemplateName", "plain"),
            ("LaunchTemplateConfigs.1.Overrides.1.InstanceType", "m5.large"),
            ("LaunchTemplateConfigs.1.Overrides.1.SubnetId", "subnet-0c0ffee000000001"),
        ];
        between(&ask(simulator, "CreateFleet", &fleet), "<instanceIds><item>").to_owned()
    }

    #[test]
    fn killed_simulator_restarts_with_its_instances() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("journal");
        let settings = Settings { running_after_ms: 0, ..Settings::default() };
        let Remembering { simulator, happenings: _, fresh } =
            Simulator::remembering(settings.clone(), &file).unwrap();
        assert!(fresh);
        let filter =
            [("Filter.1.Name", "name"), ("Filter.1.Value.1", "amazon-eks-node-al2023-x86_64-standard-*")];
        let image = between(&ask(&simulator, "DescribeImages", &filter), "<imageId>").to_owned();
        ask(
            &simulator,
            "CreateLaunchTemplate",
            &[("LaunchTemplateName", "plain"), ("LaunchTemplateData.ImageId", &image)],
        );
        let instance = launch(&simulator);
        simulator.control(Control::Advance { ms: 60_000 }).unwrap();
        let (before, then) = (simulator.with(|world| world.report()), simulator.now());
        drop(simulator);

        // Killed while writing a line.
        let mut half = OpenOptions::new().append(true).open(&file).unwrap();
        half.write_all(b"{\"call\":[17").unwrap();
        let Remembering { simulator, mut happenings, fresh } =
            Simulator::remembering(settings, &file).unwrap();
        assert!(!fresh);
        assert_eq!(simulator.with(|world| world.report()), before);
        assert!(simulator.now() >= then, "time doesn't go back");
        assert_eq!(happenings.try_recv().unwrap(), Happening::Running(instance.clone()));
        assert_eq!(launch(&simulator), instance, "the token is known");
        let lines = std::fs::read_to_string(&file).unwrap();
        assert!(lines.lines().all(|line| serde_json::from_str::<Entry>(line).is_ok()), "{lines}");
    }
}
