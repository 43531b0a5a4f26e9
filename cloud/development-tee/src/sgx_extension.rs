//! Intel's certificate extension that describes a platform
//! ("Intel SGX PCK Certificate and CRL Profile Specification", section 1.3.5).

use rcgen::CustomExtension;
use yasna::models::ObjectIdentifier;
use yasna::{DERWriter, DERWriterSeq};

use crate::vendor::{Ppid, SecurityVersions};

const SGX: [u64; 7] = [1, 2, 840, 113_741, 1, 13, 1];
/// `SGXType`: a scalable platform, the kind that has TDX.
const SCALABLE: i64 = 1;

/// The extension of a provisioning certification key's certificate.
pub(crate) fn extension(
    ppid: &Ppid,
    fmspc: [u8; 6],
    pce_id: [u8; 2],
    versions: &SecurityVersions,
) -> CustomExtension {
    let content = yasna::construct_der(|writer| {
        writer.write_sequence(|writer| {
            entry(writer, &[1], |value| value.write_bytes(ppid));
            entry(writer, &[2], |value| value.write_sequence(|writer| tcb(writer, versions)));
            entry(writer, &[3], |value| value.write_bytes(&pce_id));
            entry(writer, &[4], |value| value.write_bytes(&fmspc));
            entry(writer, &[5], |value| value.write_enum(SCALABLE));
        });
    });
    CustomExtension::from_oid_content(&SGX, content)
}

fn tcb(writer: &mut DERWriterSeq<'_>, versions: &SecurityVersions) {
    for (number, svn) in (1..).zip(versions.cpu) {
        entry(writer, &[2, number], |value| value.write_u8(svn));
    }
    entry(writer, &[2, 17], |value| value.write_u16(versions.pce));
    entry(writer, &[2, 18], |value| value.write_bytes(&versions.cpu));
}

/// SEQUENCE of the identifier below [`SGX`] and a value.
fn entry(writer: &mut DERWriterSeq<'_>, suffix: &[u64], value: impl FnOnce(DERWriter<'_>)) {
    let identifier = ObjectIdentifier::from_slice(&[SGX.as_slice(), suffix].concat());
    writer.next().write_sequence(|writer| {
        writer.next().write_oid(&identifier);
        value(writer.next());
    });
}
