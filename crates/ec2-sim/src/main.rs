//! `ec2-sim`: an EC2 that runs locally.

use std::process::ExitCode;

fn main() -> ExitCode {
    croft_ec2_sim::process::main()
}
