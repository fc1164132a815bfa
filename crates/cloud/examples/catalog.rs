//! Prints the built-in catalogue in the catalogue file format.

fn main() -> Result<(), serde_json::Error> {
    let catalog = croft_scheduler::Catalog { instance_types: croft_cloud::builtin_catalog().to_vec() };
    serde_json::to_writer(std::io::stdout().lock(), &catalog)
}
