//! Frames: how changes stand in a file of the journal, one after the other.
//!
//! | Bytes | |
//! |---|---|
//! | 4 | a mark, which no text has in it; that of the last frame of those that were written together is another one |
//! | 4 | length of what is carried |
//! | 4 | CRC-32 of all that follows; before it, of the mark that is not the last one's |
//! | 8 | the generation of changes that it belongs to |
//! | 8 | how many bytes of the file were durable when it was written |
//! | … | what is carried |
//!
//! Numbers are little-endian. Frames that were written together are there together, or not at all: whoever wrote them
//! was told of a failure else. A crash cuts off the last frame; a loss of power takes or leaves any of those that were
//! not durable. Either is the end of the file. What follows a frame that cannot be read, and was written when that
//! frame was durable, tells that somebody else has changed the file.

use memchr::memmem;

/// The mark of the last frame of those that were written together.
const LAST: &[u8] = &[0xff, b'C', b'J', 0xfe];
/// That of one that others follow.
const MORE: &[u8] = &[0xff, b'C', b'M', 0xfe];
/// What both begin with.
const MARK: &[u8] = &[0xff, b'C'];
/// Bytes of a mark.
pub(super) const MARK_BYTES: usize = 4;
/// Bytes of a frame before what it carries.
const HEAD_BYTES: usize = 28;

/// A frame that was read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Frame<'a> {
    generation: u64,
    durable: u64,
    is_last: bool,
    carried: &'a [u8],
}

/// Appends a frame to some bytes; it is the last one of those that are written together, or others follow. What is
/// carried is shorter than 4 GiB.
pub(super) fn write(out: &mut Vec<u8>, generation: u64, durable: u64, carried: &[u8], is_last: bool) {
    let (generation, durable) = (generation.to_le_bytes(), durable.to_le_bytes());
    let mut hash = hasher(is_last);
    for part in [&generation[..], &durable[..], carried] {
        hash.update(part);
    }
    let length = u32::try_from(carried.len()).unwrap_or(u32::MAX).to_le_bytes();
    let mark = if is_last { LAST } else { MORE };
    for part in [mark, &length, &hash.finalize().to_le_bytes(), &generation, &durable, carried] {
        out.extend_from_slice(part);
    }
}

/// What checks a frame: no mark can become the other one.
fn hasher(is_last: bool) -> crc32fast::Hasher {
    let mut hash = crc32fast::Hasher::new();
    if !is_last {
        hash.update(MORE);
    }
    hash
}

/// The frame that some bytes begin with, and how many of them it takes.
fn first(bytes: &[u8]) -> Option<(Frame<'_>, usize)> {
    let is_last = bytes.starts_with(LAST);
    let rest = bytes.strip_prefix(LAST).or_else(|| bytes.strip_prefix(MORE))?;
    let (length, rest) = rest.split_first_chunk()?;
    let (hash, rest) = rest.split_first_chunk()?;
    let bytes = HEAD_BYTES.checked_add(usize::try_from(u32::from_le_bytes(*length)).ok()?)?;
    let body = rest.get(..bytes - (HEAD_BYTES - 16))?;
    let mut computed = hasher(is_last);
    computed.update(body);
    if computed.finalize() != u32::from_le_bytes(*hash) {
        return None;
    }
    let (generation, body) = body.split_first_chunk()?;
    let (durable, carried) = body.split_first_chunk()?;
    let (generation, durable) = (u64::from_le_bytes(*generation), u64::from_le_bytes(*durable));
    Some((Frame { generation, durable, is_last, carried }, bytes))
}

/// What a file holds of one generation.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Found<'a> {
    pub(super) generation: u64,
    /// What its frames carry, in order; never empty.
    pub(super) carried: Vec<&'a [u8]>,
}

/// Something was changed that was durable. The number is the offset in the file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Damage(pub(super) usize);

/// Reads a file as a crash may have left it. Frames of generations before `oldest` are of an earlier use of the file,
/// and nothing. `None` if there is no other.
pub(super) fn read(bytes: &[u8], oldest: u64) -> Result<Option<Found<'_>>, Damage> {
    let mut found: Option<Found<'_>> = None;
    // What stands before `end` is whole; of what follows it, up to `at`, the last frame is still to come.
    let (mut end, mut at, mut together) = (0, 0, Vec::new());
    while let Some((frame, length)) = bytes.get(at..).and_then(first) {
        let found = found.get_or_insert(Found { generation: frame.generation, carried: Vec::new() });
        if frame.generation < oldest || frame.generation != found.generation {
            break;
        }
        together.push(frame.carried);
        at += length;
        if frame.is_last {
            found.carried.append(&mut together);
            end = at;
        }
    }
    let mut at = end;
    while let Some(rest) = bytes.get(at..) {
        let Some(next) = memmem::find(rest, MARK) else { break };
        at += next;
        match bytes.get(at..).and_then(first) {
            Some((frame, _)) if frame.generation >= oldest && frame.durable > end as u64 => {
                return Err(Damage(end));
            }
            Some((_, length)) => at += length,
            None => at += 1,
        }
    }
    Ok(found.filter(|found| !found.carried.is_empty()))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// A file of frames, each written when all before it was durable, or nothing was; and where they begin.
    fn file(generation: u64, carried: &[Vec<u8>], is_durable: bool) -> (Vec<u8>, Vec<usize>) {
        let (mut bytes, mut begins) = (Vec::new(), Vec::new());
        for carried in carried {
            begins.push(bytes.len());
            let durable = if is_durable { bytes.len() as u64 } else { 0 };
            write(&mut bytes, generation, durable, carried, true);
        }
        (bytes, begins)
    }

    fn carried() -> impl Strategy<Value = Vec<Vec<u8>>> {
        prop::collection::vec(prop::collection::vec(any::<u8>(), 0..40), 1..8)
    }

    fn count(read: Option<Found<'_>>) -> usize {
        read.map_or(0, |found| found.carried.len())
    }

    proptest! {
        #[test]
        fn what_is_written_is_read(carried in carried(), generation in 5_u64.., is_durable: bool) {
            let (bytes, _) = file(generation, &carried, is_durable);
            let found = read(&bytes, 5).unwrap().unwrap();
            prop_assert_eq!(found.generation, generation);
            prop_assert_eq!(found.carried, carried.iter().map(Vec::as_slice).collect::<Vec<_>>());
        }

        /// A crash may cut a file anywhere: all frames before are there.
        #[test]
        fn a_cut_frame_is_the_end(carried in carried(), cut: prop::sample::Index) {
            let (bytes, begins) = file(7, &carried, true);
            let cut = cut.index(bytes.len());
            let whole = begins.iter().skip(1).chain([&bytes.len()]).filter(|end| **end <= cut).count();
            prop_assert_eq!(count(read(&bytes[..cut], 7).unwrap()), whole);
        }

        /// Of what was written together nothing is there unless all of it is, wherever it was cut.
        #[test]
        fn what_was_written_together_is_there_together(
            before in carried(), together in carried(), cut: prop::sample::Index,
        ) {
            let (mut bytes, _) = file(7, &before, true);
            let (durable, begin) = (bytes.len() as u64, bytes.len());
            for (index, carried) in together.iter().enumerate() {
                write(&mut bytes, 7, durable, carried, index + 1 == together.len());
            }
            prop_assert_eq!(count(read(&bytes, 7).unwrap()), before.len() + together.len());
            let cut = begin + cut.index(bytes.len() - begin);
            prop_assert_eq!(count(read(&bytes[..cut], 7).unwrap()), before.len());
            // One that follows, and was written when they were durable, tells that they were there.
            let end = bytes.len() as u64;
            write(&mut bytes, 7, end, b"next", true);
            bytes[begin] = 0;
            prop_assert_eq!(read(&bytes, 7), Err(Damage(begin)));
        }

        /// A byte that changes among what was durable is found; among the rest it is where the file ends.
        #[test]
        fn damage_is_found(carried in carried(), at: prop::sample::Index, flip in 1_u8.., is_durable: bool) {
            let (mut bytes, begins) = file(7, &carried, is_durable);
            let at = at.index(bytes.len());
            bytes[at] ^= flip;
            let hit = begins.iter().rposition(|begin| *begin <= at).unwrap();
            let read = read(&bytes, 7);
            if is_durable && hit + 1 < carried.len() {
                prop_assert_eq!(read, Err(Damage(begins[hit])));
            } else {
                prop_assert_eq!(count(read.unwrap()), hit);
            }
        }

        /// A file is used again from its beginning: what stands behind is of an earlier generation.
        #[test]
        fn what_was_there_before_is_nothing(before in carried(), now in carried()) {
            let (mut bytes, _) = file(5, &before, true);
            prop_assert_eq!(read(&bytes, 7), Ok(None));
            let (over, _) = file(7, &now, true);
            let length = over.len().min(bytes.len());
            bytes[..length].copy_from_slice(&over[..length]);
            bytes.extend_from_slice(&over[length..]);
            prop_assert_eq!(count(read(&bytes, 7).unwrap()), now.len());
        }

        #[test]
        fn any_bytes_are_read(bytes: Vec<u8>, oldest: u64) {
            prop_assert_eq!(read(&bytes, oldest), Ok(None));
        }
    }
}
