//! What a tensor is without its values: data type, shape, and the tree of them that a dictionary of tensors is.

use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::{Error, Result};

/// Defines [`DType`] from rows of variant, torch name and bytes an element.
macro_rules! dtypes {
    ($($variant:ident $name:literal $size:literal),+ $(,)?) => {
        /// Data type of a tensor: every one that torch has.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
        #[allow(missing_docs, reason = "each variant is the torch type of the same name")]
        #[non_exhaustive]
        pub enum DType {
            $($variant,)+
        }

        impl DType {
            /// All data types.
            pub const ALL: &'static [Self] = &[$(Self::$variant,)+];

            /// Bytes of one element. Types of less than a byte are packed into bytes, of which torch counts the elements.
            #[must_use]
            pub const fn item_size(self) -> u64 {
                match self {
                    $(Self::$variant => $size,)+
                }
            }

            /// Name as torch prints it: `torch.float32`.
            #[must_use]
            pub const fn name(self) -> &'static str {
                match self {
                    $(Self::$variant => concat!("torch.", $name),)+
                }
            }

            /// The type of that name, which may lack the leading `torch.`.
            ///
            /// # Errors
            /// There is no such type.
            pub fn parse(name: &str) -> Result<Self> {
                match name.strip_prefix("torch.").unwrap_or(name) {
                    $($name => Ok(Self::$variant),)+
                    _ => Err(Error::UnknownDType { name: name.into() }),
                }
            }
        }
    };
}

dtypes! {
    Bool "bool" 1, U8 "uint8" 1, U16 "uint16" 2, U32 "uint32" 4, U64 "uint64" 8,
    I8 "int8" 1, I16 "int16" 2, I32 "int32" 4, I64 "int64" 8,
    F16 "float16" 2, BF16 "bfloat16" 2, F32 "float32" 4, F64 "float64" 8,
    C32 "complex32" 4, BC32 "bcomplex32" 4, C64 "complex64" 8, C128 "complex128" 16,
    F8E4M3Fn "float8_e4m3fn" 1, F8E5M2 "float8_e5m2" 1, F8E4M3FnUz "float8_e4m3fnuz" 1, F8E5M2FnUz "float8_e5m2fnuz" 1,
    F8E8M0Fnu "float8_e8m0fnu" 1, F4E2M1FnX2 "float4_e2m1fn_x2" 1,
    Bits1X8 "bits1x8" 1, Bits2X4 "bits2x4" 1, Bits4X2 "bits4x2" 1, Bits8 "bits8" 1, Bits16 "bits16" 2,
    U1 "uint1" 1, U2 "uint2" 1, U3 "uint3" 1, U4 "uint4" 1, U5 "uint5" 1, U6 "uint6" 1, U7 "uint7" 1,
    I1 "int1" 1, I2 "int2" 1, I3 "int3" 1, I4 "int4" 1, I5 "int5" 1, I6 "int6" 1, I7 "int7" 1,
}

impl Serialize for DType {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.name())
    }
}

impl<'de> Deserialize<'de> for DType {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let name = std::borrow::Cow::<str>::deserialize(deserializer)?;
        Self::parse(&name).map_err(serde::de::Error::custom)
    }
}

/// Bytes that a dense tensor of this type and shape takes.
///
/// Sizes of zero count as one when looking for overflow: torch computes strides that way.
///
/// # Errors
/// The number of bytes is beyond what a signed 64-bit number holds.
pub fn dense_bytes(dtype: DType, shape: &[u64]) -> Result<u64> {
    let overflow = || Error::ShapeOverflow {
        shape: shape.to_vec(),
        dtype,
    };
    let mut bytes = dtype.item_size();
    let mut empty = false;
    for &size in shape {
        empty |= size == 0;
        bytes = bytes.checked_mul(size.max(1)).ok_or_else(overflow)?;
    }
    if i64::try_from(bytes).is_err() {
        return Err(overflow());
    }
    Ok(if empty { 0 } else { bytes })
}

/// A tensor without its values.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct LeafSchema {
    /// Type of an element.
    pub dtype: DType,
    /// Number of elements along each dimension.
    pub shape: Vec<u64>,
}

impl LeafSchema {
    /// Bytes that a dense tensor of this schema takes.
    ///
    /// # Errors
    /// As [`dense_bytes`].
    pub fn bytes(&self) -> Result<u64> {
        dense_bytes(self.dtype, &self.shape)
    }
}

/// A dictionary of tensors without their values.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct TreeSchema {
    /// Leading dimensions that all fields share.
    pub batch_size: Vec<u64>,
    /// Fields in their order.
    #[serde(with = "fields_as_map")]
    pub fields: Vec<(String, FieldSchema)>,
}

/// One field of a tree.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum FieldSchema {
    /// A nested dictionary.
    Tree(TreeSchema),
    /// A tensor.
    Leaf(LeafSchema),
}

impl FieldSchema {
    fn shape(&self) -> &[u64] {
        match self {
            Self::Tree(tree) => &tree.batch_size,
            Self::Leaf(leaf) => &leaf.shape,
        }
    }
}

/// One reason why two schemas differ.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Difference {
    /// Keys from the root to the field; none for the root itself.
    pub key: Vec<String>,
    /// What differs there.
    pub what: Mismatch,
}

/// What differs between two schemas at one key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Mismatch {
    /// Only the first schema has the field.
    OnlyInFirst,
    /// Only the second schema has the field.
    OnlyInSecond,
    /// One has a tensor where the other has a dictionary.
    Kind,
    /// Tensors of different types: the first's and the second's.
    DType(DType, DType),
    /// Tensors of different shapes: the first's and the second's.
    Shape(Vec<u64>, Vec<u64>),
    /// Dictionaries of different batch sizes: the first's and the second's.
    BatchSize(Vec<u64>, Vec<u64>),
}

impl TreeSchema {
    /// Every reason why `other` is not the same; none where it is. The order of fields does not count.
    #[must_use]
    pub fn differences(&self, other: &Self) -> Vec<Difference> {
        let mut found = Vec::new();
        self.compare(other, &mut Vec::new(), &mut found);
        found
    }

    fn compare(&self, other: &Self, path: &mut Vec<String>, found: &mut Vec<Difference>) {
        let mut note = |path: &[String], what| {
            found.push(Difference {
                key: path.to_vec(),
                what,
            });
        };
        if self.batch_size != other.batch_size {
            note(
                path,
                Mismatch::BatchSize(self.batch_size.clone(), other.batch_size.clone()),
            );
        }
        let theirs: std::collections::HashMap<&str, &FieldSchema> = other
            .fields
            .iter()
            .map(|(key, field)| (key.as_str(), field))
            .collect();
        for (key, field) in &self.fields {
            path.push(key.clone());
            match (field, theirs.get(key.as_str())) {
                (_, None) => found.push(Difference {
                    key: path.clone(),
                    what: Mismatch::OnlyInFirst,
                }),
                (FieldSchema::Tree(first), Some(FieldSchema::Tree(second))) => {
                    first.compare(second, path, found);
                }
                (FieldSchema::Leaf(first), Some(FieldSchema::Leaf(second))) => {
                    first.compare(second, path, found);
                }
                _ => found.push(Difference {
                    key: path.clone(),
                    what: Mismatch::Kind,
                }),
            }
            path.pop();
        }
        let ours: std::collections::HashSet<&str> = self.fields.iter().map(|(key, _)| key.as_str()).collect();
        for (key, _) in other
            .fields
            .iter()
            .filter(|(key, _)| !ours.contains(key.as_str()))
        {
            path.push(key.clone());
            found.push(Difference {
                key: path.clone(),
                what: Mismatch::OnlyInSecond,
            });
            path.pop();
        }
    }

    /// Checks that every field starts with the batch size of its dictionary and that no shape overflows.
    ///
    /// # Errors
    /// The first field, in order, for which that does not hold.
    pub fn check(&self) -> Result<()> {
        self.check_below(&mut Vec::new())
    }

    fn check_below(&self, path: &mut Vec<String>) -> Result<()> {
        for (key, field) in &self.fields {
            path.push(key.clone());
            if !field.shape().starts_with(&self.batch_size) {
                return Err(Error::BatchSize {
                    key: path.clone(),
                    shape: field.shape().to_vec(),
                    batch_size: self.batch_size.clone(),
                });
            }
            match field {
                FieldSchema::Tree(tree) => tree.check_below(path)?,
                FieldSchema::Leaf(leaf) => {
                    leaf.bytes().map_err(|error| error.at_key(path))?;
                }
            }
            path.pop();
        }
        Ok(())
    }
}

impl LeafSchema {
    fn compare(&self, other: &Self, path: &[String], found: &mut Vec<Difference>) {
        let mut note = |what| {
            found.push(Difference {
                key: path.to_vec(),
                what,
            });
        };
        if self.dtype != other.dtype {
            note(Mismatch::DType(self.dtype, other.dtype));
        }
        if self.shape != other.shape {
            note(Mismatch::Shape(self.shape.clone(), other.shape.clone()));
        }
    }
}

/// Fields as a JSON object, whose order is kept.
mod fields_as_map {
    use super::FieldSchema;
    use serde::de::{MapAccess, Visitor};
    use serde::{Deserializer, Serializer};

    pub(super) fn serialize<S: Serializer>(
        fields: &[(String, FieldSchema)],
        serializer: S,
    ) -> Result<S::Ok, S::Error> {
        serializer.collect_map(fields.iter().map(|(key, field)| (key, field)))
    }

    struct Fields;

    impl<'de> Visitor<'de> for Fields {
        type Value = Vec<(String, FieldSchema)>;

        fn expecting(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
            formatter.write_str("an object of fields")
        }

        fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
            let mut fields = Vec::new();
            while let Some(entry) = map.next_entry()? {
                fields.push(entry);
            }
            Ok(fields)
        }
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(
        deserializer: D,
    ) -> Result<Vec<(String, FieldSchema)>, D::Error> {
        deserializer.deserialize_map(Fields)
    }
}
