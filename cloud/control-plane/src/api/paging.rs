//! Pages by number, of lists that the database cuts.

use super::error::ApiResult;
use super::input::within;

/// A page far behind the end costs the database more and shows nothing.
const MAX_PAGE: u32 = 100_000;

/// How many items a page of a list has.
#[derive(Debug, Clone, Copy)]
pub(crate) struct PageSizes {
    /// Where nobody says.
    pub(crate) usual: u32,
    /// At the most.
    pub(crate) most: u32,
}

/// The page that a query asks for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Paging {
    /// Its number, from 1.
    pub(crate) page: u32,
    /// Most items of it.
    pub(crate) page_size: u32,
}

impl PageSizes {
    /// Reads `page` and `page_size` of a query.
    pub(crate) fn read(self, page: Option<i64>, page_size: Option<i64>) -> ApiResult<Paging> {
        Ok(Paging {
            page: within("page", page, 1, 1..=MAX_PAGE)?,
            page_size: within("page_size", page_size, self.usual, 1..=self.most)?,
        })
    }
}

impl Paging {
    /// Most rows that the database gives.
    pub(crate) fn limit(self) -> i64 {
        i64::from(self.page_size)
    }

    /// Rows of the pages before.
    pub(crate) fn offset(self) -> i64 {
        i64::from(self.page - 1) * self.limit()
    }

    /// How many pages a list of `total` items has.
    pub(crate) fn pages(self, total: i64) -> i64 {
        (total + self.limit() - 1) / self.limit()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SIZES: PageSizes = PageSizes { usual: 20, most: 100 };

    #[test]
    fn every_item_is_on_one_page() {
        for total in [0, 1, 6, 7, 8, 700] {
            let page = |number| SIZES.read(Some(number), Some(7)).unwrap();
            let pages = page(1).pages(total);
            let cut = |number| (page(number).offset()..total).take(7).collect::<Vec<_>>();
            let items: Vec<_> = (1..=pages).flat_map(cut).collect();
            assert_eq!(items, (0..total).collect::<Vec<_>>());
            assert!(cut(pages + 1).is_empty());
        }
    }

    #[test]
    fn pages_have_bounds() {
        assert_eq!(SIZES.read(None, None).unwrap(), Paging { page: 1, page_size: 20 });
        assert_eq!(SIZES.read(Some(100_000), Some(100)).unwrap().offset(), 9_999_900);
        for (page, size) in [(0, 1), (100_001, 1), (1, 0), (1, 101), (i64::MAX, i64::MIN)] {
            assert!(SIZES.read(Some(page), Some(size)).is_err(), "{page} {size}");
        }
    }
}
