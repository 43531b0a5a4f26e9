//! `cloister cvms list`.

use cloister_management_api::Page;
use cloister_management_api::v20260121::CvmInfo;
use jiff::Timestamp;

use crate::api::read;
use crate::commands::Outcome;
use crate::output::{Align, Table};
use crate::session::Session;

/// Arguments of `cvms list`.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Which page to show
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..))]
    page: u32,
    /// CVMs on a page
    #[arg(long, default_value_t = 100, value_parser = clap::value_parser!(u32).range(1..=100))]
    page_size: u32,
}

/// Prints one page.
pub(super) async fn run(args: Args, session: &Session) -> Outcome {
    let (page, page_size) = (args.page.to_string(), args.page_size.to_string());
    let query = [("page", page.as_str()), ("page_size", page_size.as_str())];
    let document = session.client()?.get(&["cvms", "paginated"], &query).await?;
    if session.output.json {
        session.output.document(&document);
        return Ok(());
    }
    let list: Page<CvmInfo> = read(&document)?;
    session.output.table(&table(list.items), "There are no CVMs. Make one: cloister deploy -c compose.yaml");
    if list.pages > 1 {
        session.output.say(&format!("page {} of {}, {} CVMs in all", list.page, list.pages, list.total));
    }
    Ok(())
}

fn table(cvms: Vec<CvmInfo>) -> Table {
    let mut table = Table::new(&[
        ("NAME", Align::Left),
        ("ID", Align::Left),
        ("STATUS", Align::Left),
        ("VCPU", Align::Right),
        ("MEMORY", Align::Right),
        ("DISK", Align::Right),
        ("NODE", Align::Left),
        ("CREATED", Align::Left),
        ("URL", Align::Left),
    ]);
    for cvm in cvms {
        let url = app_url(&cvm);
        table.row([
            cvm.name,
            cvm.id.to_string(),
            cvm.status,
            cvm.resource.vcpu.map(|count| count.to_string()).unwrap_or_default(),
            cvm.resource.memory_in_gb.map(|gb| format!("{gb} GB")).unwrap_or_default(),
            cvm.resource.disk_in_gb.map(|gb| format!("{gb} GB")).unwrap_or_default(),
            cvm.node_info.and_then(|node| node.name).unwrap_or_default(),
            cvm.created_at.map(minute).unwrap_or_default(),
            url.unwrap_or_default(),
        ]);
    }
    table
}

/// Where the application answers.
pub(in crate::commands) fn app_url(cvm: &CvmInfo) -> Option<String> {
    cvm.endpoints.iter().flatten().map(|urls| urls.app.clone()).find(|url| !url.is_empty())
}

/// `2026-11-21 04:38`, in UTC as everywhere.
pub(in crate::commands) fn minute(time: Timestamp) -> String {
    time.strftime("%Y-%m-%d %H:%M").to_string()
}
