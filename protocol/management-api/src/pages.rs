//! Pages of lists. Every list keeps the form that its clients know; there is more than one.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// A page by number.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Page<T> {
    /// Items of this page.
    pub items: Vec<T>,
    /// Items of all pages.
    pub total: i64,
    /// Number of this page, from 1.
    pub page: u32,
    /// Most items of a page.
    pub page_size: u32,
    /// Number of pages.
    pub pages: i64,
}

impl<T> Page<T> {
    /// The page with these items out of `total`.
    #[must_use]
    pub fn new(items: Vec<T>, total: i64, page: u32, page_size: u32) -> Self {
        let size = i64::from(page_size.max(1));
        Self { items, total, page, page_size, pages: (total + size - 1) / size }
    }

    /// Cuts a page out of a complete list that is small by nature.
    #[must_use]
    pub fn of_all(all: Vec<T>, page: u32, page_size: u32) -> Self {
        let total = i64::try_from(all.len()).unwrap_or(i64::MAX);
        let size = usize::try_from(page_size).unwrap_or(usize::MAX);
        let skipped = size.saturating_mul(usize::try_from(page).unwrap_or(usize::MAX).saturating_sub(1));
        Self::new(all.into_iter().skip(skipped).take(size).collect(), total, page, page_size)
    }
}

/// A page by cursor, of the lists that nest its facts.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct CursorPage<T> {
    /// Items.
    pub data: Vec<T>,
    /// Where the page lies.
    pub pagination: Pagination,
}

/// Where a page lies.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Pagination {
    /// Whether more follow.
    pub has_more: bool,
    /// Cursor of the next page.
    pub next_cursor: Option<String>,
    /// Items of all pages.
    pub total: Option<i64>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pages_are_counted_and_cut() {
        let page = Page::of_all((0..5).collect(), 2, 2);
        assert_eq!((page.items, page.total, page.pages), (vec![2, 3], 5, 3));
        assert_eq!(Page::<u8>::new(vec![], 0, 1, 30).pages, 0);
        assert!(Page::of_all(vec![1], u32::MAX, u32::MAX).items.is_empty());
    }
}
