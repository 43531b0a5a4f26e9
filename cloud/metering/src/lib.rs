//! What CVMs use, and what it costs: prices, intervals, hourly records.

mod intervals;
mod prices;
mod records;
mod runs;
mod statement;
mod wanted;

pub use intervals::{Interval, Span, UnknownUsageType, UsageType, Window, minute_of};

pub use prices::{
    ANY_PRODUCT, Billed, CPU_FAMILY, DECIMALS, GPU_FAMILY, MAX_FILE_BYTES, PriceError, PriceList, Rates,
    Size, SizeGpus, rounded,
};
pub use records::{Label, Record, Records};
pub use runs::{Part, Run, Runs};
pub use statement::{Page, Statement, Tally, statement};
pub use wanted::{Meter, SERVING, Serving, Standing, wanted};
