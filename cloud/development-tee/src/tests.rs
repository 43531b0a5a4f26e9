mod keeping;
mod quotes;
