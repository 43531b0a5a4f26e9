//! A whole KMS on loopback, from an empty directory to its doors, and its deaths.

#[cfg(test)]
mod client;
#[cfg(test)]
mod deaths;
#[cfg(test)]
mod flows;
#[cfg(test)]
mod lab;
