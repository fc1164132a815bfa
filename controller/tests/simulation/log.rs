//! The log of runs, to find the cause of a violation.

use croft_runtime::telemetry::{self, LogFormat};

/// Without each step of the AWS SDK, which would be nine tenths of it.
const FILTER: &str = "debug,aws_config=warn,aws_runtime=warn,aws_sdk_ec2=warn,aws_sdk_sqs=warn,aws_smithy_runtime=warn,\
    aws_smithy_runtime_api=warn";

/// Logs if `CROFT_SIM_LOG` is set.
pub fn start_if_asked() {
    if std::env::var("CROFT_SIM_LOG").is_ok() {
        // Another test of the program may have started it.
        let _ = telemetry::init(FILTER, LogFormat::Text);
    }
}
