//! Keys of applications, derived from the KMS's roots and from each other.
