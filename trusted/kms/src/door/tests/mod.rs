mod admin;
mod callers;
mod floods;
pub(crate) mod lab;
mod owners;
mod releases;
