//! Names on the wire and in the database, each written once.

/// A stored name that this version does not know.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("unknown {kind} {name:?} in the database")]
pub struct UnknownName {
    kind: &'static str,
    name: String,
}

impl UnknownName {
    /// A name that is none of this kind.
    pub(crate) fn new(kind: &'static str, name: &str) -> Self {
        Self { kind, name: name.to_owned() }
    }
}

macro_rules! named_enum {
    ($(#[$doc:meta])* $name:ident { $($(#[$variant_doc:meta])* $variant:ident = $text:literal,)+ }) => {
        $(#[$doc])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
        pub enum $name {
            $($(#[$variant_doc])* $variant,)+
        }

        impl $name {
            /// Every value, in order of declaration.
            pub const ALL: &[Self] = &[$(Self::$variant),+];

            /// Name on the wire and in the database.
            #[must_use]
            pub const fn as_str(self) -> &'static str {
                match self {
                    $(Self::$variant => $text,)+
                }
            }
        }

        impl std::fmt::Display for $name {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str(self.as_str())
            }
        }

        impl std::str::FromStr for $name {
            type Err = $crate::operations::UnknownName;

            fn from_str(name: &str) -> std::result::Result<Self, $crate::operations::UnknownName> {
                Self::ALL
                    .iter()
                    .copied()
                    .find(|value| value.as_str() == name)
                    .ok_or_else(|| $crate::operations::UnknownName::new(stringify!($name), name))
            }
        }

        impl TryFrom<String> for $name {
            type Error = $crate::operations::UnknownName;

            fn try_from(name: String) -> std::result::Result<Self, $crate::operations::UnknownName> {
                name.parse()
            }
        }
    };
}

pub(crate) use named_enum;
