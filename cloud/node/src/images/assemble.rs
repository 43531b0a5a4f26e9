//! Finds the image in the contents of an archive and checks that all of it is there.

use std::collections::BTreeMap;

use serde::de::DeserializeOwned;

use super::archive::Contents;
use super::manifest::{
    Config, DOCKER_LIST, DOCKER_MANIFEST, Descriptor, DockerImage, Index, Manifest, NAME_ANNOTATIONS,
    OCI_CONFIG, OCI_INDEX, OCI_MANIFEST,
};
use super::staging::Staging;
use super::{Digest, ImageError, Limits, Reference};

const MAX_INDEX_DEPTH: usize = 3;
const LAYER: &str = "application/vnd.oci.image.layer.v1.tar";

/// A complete image whose blobs are all staged.
#[derive(Debug)]
pub(super) struct Assembled {
    pub(super) reference: Reference,
    /// The manifest or index that the reference names.
    pub(super) root: Digest,
    /// Media types of the manifests and indexes.
    pub(super) manifests: BTreeMap<Digest, String>,
    /// Sizes of all blobs, manifests included.
    pub(super) blobs: BTreeMap<Digest, u64>,
}

/// Finds the image to be called `wanted`, or the one that the archive itself names.
pub(super) fn assemble(
    contents: &Contents,
    staging: &mut Staging,
    wanted: Option<Reference>,
    limits: &Limits,
) -> Result<Assembled, ImageError> {
    let (reference, root) = if let Some(index) = contents.find("index.json") {
        let index: Index = parse(staging, &index, limits)?;
        let named =
            index.manifests.into_iter().map(|root| (named_by(&root).into_iter().collect(), root)).collect();
        choose(named, wanted)?
    } else if let Some(list) = contents.find("manifest.json") {
        let images: Vec<DockerImage> = parse(staging, &list, limits)?;
        let (reference, image) =
            choose(images.into_iter().map(|image| (tags_of(&image), image)).collect(), wanted)?;
        (reference, convert(&image, contents, staging, limits)?)
    } else {
        return Err(ImageError::Malformed("it has neither index.json nor manifest.json"));
    };
    let mut assembled =
        Assembled { reference, root: root.digest, manifests: BTreeMap::new(), blobs: BTreeMap::new() };
    assembled.collect(&root, staging, limits, MAX_INDEX_DEPTH)?;
    Ok(assembled)
}

/// The wanted name goes to the only image, or to the one that carries it; without one, the archive must
/// hold exactly one name.
fn choose<T>(
    mut images: Vec<(Vec<Reference>, T)>,
    wanted: Option<Reference>,
) -> Result<(Reference, T), ImageError> {
    let Some(wanted) = wanted else {
        let count = images.iter().map(|(names, _)| names.len()).sum();
        let mut named =
            images.into_iter().filter_map(|(mut names, image)| names.pop().map(|name| (name, image)));
        return named.next().filter(|_| count == 1).ok_or(ImageError::Ambiguous(count));
    };
    if images.len() > 1 {
        images.retain(|(names, _)| names.contains(&wanted));
    }
    let count = images.len();
    images.pop().filter(|_| count == 1).map(|(_, image)| (wanted, image)).ok_or(ImageError::Ambiguous(count))
}

fn tags_of(image: &DockerImage) -> Vec<Reference> {
    image.repo_tags.iter().flatten().filter_map(|tag| tag.parse().ok()).collect()
}

fn named_by(root: &Descriptor) -> Option<Reference> {
    let annotations = root.annotations.as_ref()?;
    // A bare tag would parse as a repository.
    NAME_ANNOTATIONS
        .iter()
        .filter_map(|annotation| annotations.get(*annotation))
        .filter(|name| name.contains(['/', ':']))
        .find_map(|name| name.parse().ok())
}

fn parse<T: DeserializeOwned>(staging: &Staging, digest: &Digest, limits: &Limits) -> Result<T, ImageError> {
    let bytes = staging.read(digest, limits.manifest_bytes)?.ok_or(INCOMPLETE)?;
    serde_json::from_slice(&bytes)
        .map_err(|_| ImageError::Malformed("a manifest or configuration in it is not valid"))
}

const INCOMPLETE: ImageError = ImageError::Malformed("a manifest, configuration or layer is missing in it");

/// Makes the OCI manifest of an image of a docker archive. The same archive gives the same manifest.
fn convert(
    image: &DockerImage,
    contents: &Contents,
    staging: &mut Staging,
    limits: &Limits,
) -> Result<Descriptor, ImageError> {
    let describe = |path: &str, media_type: String| {
        let digest = contents.find(path).ok_or(INCOMPLETE)?;
        let size = staging.size(&digest).ok_or(INCOMPLETE)?;
        Ok::<_, ImageError>(Descriptor { media_type, digest, size, annotations: None })
    };
    let config = describe(&image.config, OCI_CONFIG.to_owned())?;
    let diff_ids = parse::<Config>(staging, &config.digest, limits)?.rootfs.diff_ids;
    if diff_ids.len() != image.layers.len() {
        return Err(ImageError::Malformed("its configuration lists other layers than its manifest"));
    }
    let mut layers = Vec::new();
    for (path, diff_id) in image.layers.iter().zip(diff_ids) {
        let mut layer = describe(path, LAYER.to_owned())?;
        match staging.magic(&layer.digest)? {
            [0x1f, 0x8b, ..] => layer.media_type += "+gzip",
            [0x28, 0xb5, 0x2f, 0xfd] => layer.media_type += "+zstd",
            // Uncompressed, so that the digest is the one which the configuration promises.
            _ if layer.digest != diff_id => {
                return Err(ImageError::Malformed("a layer does not have its digest"));
            }
            _ => {}
        }
        layers.push(layer);
    }
    let media_type = OCI_MANIFEST.to_owned();
    let manifest = Manifest { schema_version: 2, media_type: Some(media_type.clone()), config, layers };
    let bytes = serde_json::to_vec(&manifest).map_err(|_| INCOMPLETE)?;
    let digest = staging.add(&bytes[..])?;
    Ok(Descriptor { media_type, digest, size: bytes.len() as u64, annotations: None })
}

impl Assembled {
    /// Takes a manifest and everything below it. Of an index, parts may be absent: tools save the
    /// platforms that they have.
    fn collect(
        &mut self,
        root: &Descriptor,
        staging: &Staging,
        limits: &Limits,
        depth: usize,
    ) -> Result<(), ImageError> {
        self.take(root, staging)?;
        self.manifests.insert(root.digest, root.media_type.clone());
        match root.media_type.as_str() {
            OCI_MANIFEST | DOCKER_MANIFEST => {
                let manifest: Manifest = parse(staging, &root.digest, limits)?;
                self.take(&manifest.config, staging)?;
                manifest.layers.iter().try_for_each(|layer| self.take(layer, staging))
            }
            OCI_INDEX | DOCKER_LIST if depth > 0 => {
                let index: Index = parse(staging, &root.digest, limits)?;
                let mut is_empty = true;
                for child in index.manifests.iter().filter(|child| staging.size(&child.digest).is_some()) {
                    is_empty = false;
                    // A bomb lists the same manifest over and over.
                    if !self.manifests.contains_key(&child.digest) {
                        self.collect(child, staging, limits, depth - 1)?;
                    }
                }
                if is_empty { Err(INCOMPLETE) } else { Ok(()) }
            }
            _ => Err(ImageError::Malformed("a manifest in it is of a kind that cannot be served")),
        }
    }

    fn take(&mut self, blob: &Descriptor, staging: &Staging) -> Result<(), ImageError> {
        match staging.size(&blob.digest) {
            Some(size) if size == blob.size => {
                self.blobs.insert(blob.digest, size);
                Ok(())
            }
            Some(_) => Err(ImageError::Malformed("a blob does not have the size that its manifest gives")),
            None => Err(INCOMPLETE),
        }
    }
}
