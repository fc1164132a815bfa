//! `croft catalog export`: the instance types and prices of a region, as a file for `--catalog`.

use std::{io::Write as _, process::ExitCode};

use clap::{Args, Subcommand};
use croft_scheduler::{Catalog, InstanceType};

use crate::{aws::AwsArgs, failure::Failure, output::Output, source::block_on};

/// Arguments of `croft catalog`.
#[derive(Args, Clone, Debug)]
pub(crate) struct CatalogArgs {
    #[command(subcommand)]
    command: CatalogCommand,
}

#[derive(Subcommand, Clone, Debug)]
enum CatalogCommand {
    /// Write the instance types, zones and prices of a region to standard output
    ///
    /// simulate, plan and explain read the file with --catalog. AWS is asked with the present credentials, for
    /// ec2:DescribeInstanceTypes, ec2:DescribeInstanceTypeOfferings, ec2:DescribeSpotPriceHistory and pricing:GetProducts.
    /// With --skip-aws the built-in catalogue is written: that of us-east-1.
    Export(ExportArgs),
}

#[derive(Args, Clone, Debug)]
struct ExportArgs {
    #[command(flatten)]
    aws: AwsArgs,
}

/// Runs the command.
pub(crate) fn run(args: &CatalogArgs, out: &mut Output) -> Result<ExitCode, Failure> {
    let CatalogCommand::Export(ExportArgs { aws }) = &args.command;
    let catalog = if aws.is_skipped() {
        Catalog { instance_types: croft_cloud::builtin_catalog().to_vec() }
    } else {
        let (catalog, warnings) = block_on(aws.catalog())?;
        out.warn(&warnings)?;
        catalog
    };
    write(&catalog.instance_types, out)?;
    Ok(ExitCode::SUCCESS)
}

/// A line for each type, so that two files can be compared.
fn write(types: &[InstanceType], out: &mut Output) -> Result<(), Failure> {
    writeln!(out, "{{\"instanceTypes\": [")?;
    for (i, one) in types.iter().enumerate() {
        let comma = if i + 1 < types.len() { "," } else { "" };
        let text = serde_json::to_string(one).map_err(anyhow::Error::from)?;
        writeln!(out, "{text}{comma}")?;
    }
    writeln!(out, "]}}")?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::output::Written;

    #[test]
    fn what_is_written_is_the_catalogue_that_is_read() {
        let types = croft_cloud::builtin_catalog();
        let written = Written::default();
        let mut out = Output::to(Box::new(written.clone()), Box::new(std::io::sink()));
        write(&types, &mut out).unwrap();
        let read: Catalog = serde_json::from_str(&written.text()).unwrap();
        assert_eq!(read.instance_types, types.to_vec());
    }
}
