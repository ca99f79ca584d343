//! What a tensor is without its values: data type and shape.

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
