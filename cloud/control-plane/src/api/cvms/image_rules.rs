//! To which OS images a CVM may change.

use cloister_management_api::ErrorCode;
use cloister_node_api::NodeImage;

use crate::api::error::{ApiError, ApiResult};
use crate::api::placing::version;

/// Whether a CVM with the image `own`, as far as its node still knows it, may change to another: production
/// images only to production images, because a development image would open to its operator what was sealed
/// for production; development images only to their like; and with GPUs only to images that drive them.
pub(crate) fn may_change(own: Option<&NodeImage>, has_gpus: bool, image: &NodeImage) -> bool {
    // What nobody knows any more counts as production.
    let is_dev = own.is_some_and(|own| own.is_dev);
    is_dev == image.is_dev && (!has_gpus || image.supports_gpu)
}

/// The newest image of a name, slug or hash among those of the CVM's node that it may change to.
pub(crate) fn choose<'n>(
    images: impl Iterator<Item = &'n NodeImage>,
    own: Option<&NodeImage>,
    has_gpus: bool,
    name: &str,
) -> ApiResult<&'n NodeImage> {
    let hash = name.strip_prefix("0x").unwrap_or(name);
    let is_named =
        |image: &&NodeImage| image.name == name || image.os_image_hash.to_string().eq_ignore_ascii_case(hash);
    let named: Vec<_> = images.filter(is_named).collect();
    if named.is_empty() {
        return Err(ApiError::coded(ErrorCode::ImageUnknown).about("image", name));
    }
    let fitting = named.into_iter().filter(|image| may_change(own, has_gpus, image));
    // Of several of one version the CVM's own comes last, so that it is the one that is kept.
    let is_own = |image: &NodeImage| own.is_some_and(|own| own.os_image_hash == image.os_image_hash);
    fitting.max_by_key(|image| (version(&image.version), is_own(image))).ok_or_else(|| {
        let message = "a production CVM changes to production images only and a development CVM to \
                       development images only, and a CVM with GPUs to images that drive them";
        ApiError::explained(ErrorCode::NoCompatibleImage, message).about("image", name)
    })
}

#[cfg(test)]
mod tests {
    use cloister_app_compose::OsImageHash;

    use super::*;

    fn image(name: &str, seed: u8, version: &str, is_dev: bool, supports_gpu: bool) -> NodeImage {
        let os_image_hash = OsImageHash::from_bytes([seed; 32]);
        NodeImage { name: name.into(), version: version.into(), is_dev, os_image_hash, supports_gpu }
    }

    #[test]
    fn kinds_stay_among_themselves() {
        let images = [
            image("prod", 1, "0.1.0", false, false),
            image("prod-gpu", 2, "0.2.0", false, true),
            image("dev", 3, "0.1.0", true, true),
        ];
        let code = |own: Option<usize>, has_gpus, name: &str| {
            let own = own.and_then(|own| images.get(own));
            choose(images.iter(), own, has_gpus, name)
                .map(|image| image.name.clone())
                .map_err(|error| error.code())
        };
        let (unknown, unfit) = (Err(Some(ErrorCode::ImageUnknown)), Err(Some(ErrorCode::NoCompatibleImage)));
        assert_eq!(code(Some(0), false, "prod-gpu"), Ok("prod-gpu".to_owned()));
        assert_eq!(code(Some(1), true, "prod"), unfit);
        assert_eq!(code(Some(0), false, "dev"), unfit);
        assert_eq!(code(Some(2), false, "prod"), unfit);
        assert_eq!(code(None, false, "dev"), unfit);
        assert_eq!(code(None, false, "prod"), Ok("prod".to_owned()));
        assert_eq!(code(Some(0), false, "none"), unknown);
        assert_eq!(code(Some(0), false, &"02".repeat(32)), Ok("prod-gpu".to_owned()));
    }

    #[test]
    fn the_newest_of_a_name_is_taken_and_the_own_kept() {
        let images = [
            image("prod", 1, "0.9.0", false, false),
            image("prod", 2, "0.10.0", false, false),
            image("prod", 3, "0.10.0", false, false),
        ];
        for own in [&images[1], &images[2]] {
            assert_eq!(choose(images.iter(), Some(own), false, "prod").unwrap(), own);
        }
        let newest = choose(images.iter(), Some(&images[0]), false, "prod").unwrap();
        assert_eq!(newest.version, "0.10.0");
    }
}
