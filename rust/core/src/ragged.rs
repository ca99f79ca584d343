//! Ragged tensors on disk: a file of values and files that say where each component lies in them.
//!
//! In the strided layout a row of sizes a component is in `a.shape.memmap`, and the components lie one after the other. In
//! the jagged layout one dimension differs; the components of the dimension that packs them start at the numbers in
//! `a.offsets.memmap` and end at the next one, or after as many rows as `a.lengths.memmap` says where that is there.

use std::path::Path;

use serde_json::{Map, Value};

use crate::metadata::{shape, unexpected};
use crate::schema::{DType, LeafSchema};
use crate::{Error, Result};

/// What follows the key in the names of the files beside the values.
const SHAPE: &str = ".shape";
const OFFSETS: &str = ".offsets";
const LENGTHS: &str = ".lengths";

/// What a level says of a ragged tensor.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RaggedSchema {
    /// The entry as it is in the file.
    pub entry: Map<String, Value>,
    /// Type of an element.
    pub dtype: DType,
    /// How the components lie.
    pub layout: RaggedLayout,
}

/// How the components of a ragged tensor lie.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RaggedLayout {
    /// One after the other, their sizes in a table of that shape.
    Strided([u64; 2]),
    /// Packed along one dimension.
    Jagged {
        /// Shape of the values.
        values: Vec<u64>,
        /// The dimension, counted with that of the components, which is the first.
        dim: usize,
        /// Number of offsets: one more than there are components.
        offsets: LeafSchema,
        /// Number of lengths, if there are any: as many as components.
        lengths: Option<LeafSchema>,
    },
}

impl RaggedSchema {
    /// Reads the entry of the field `key` in the metadata file `path`.
    ///
    /// # Errors
    /// A part of it is missing or not what it must be.
    pub fn parse(entry: &Map<String, Value>, key: &str, path: &Path) -> Result<Self> {
        let get = |name: &str, wanted| {
            entry
                .get(name)
                .ok_or_else(|| unexpected(path, key, wanted, &Value::Object(entry.clone())))
        };
        let dtype = dtype(get("dtype", "an entry with a data type")?, key, path)?;
        let size = get("shape", "an entry with a shape")?;
        let sizes = shape(size, key, path)?;
        let layout = match entry.get("layout") {
            None => match *sizes {
                [components, dims] => RaggedLayout::Strided([components, dims]),
                _ => return Err(unexpected(path, key, "the shape of a table of sizes", size)),
            },
            Some(Value::String(name)) if name == "torch.jagged" => {
                let dim = get("ragged_idx", "an entry with the number of the ragged dimension")?;
                let part = |name: &str| {
                    let wanted = "a data type and a shape";
                    let part = get(name, wanted)?;
                    let object = part.as_object();
                    let (Some(sizes), Some(kind)) = (
                        object.and_then(|part| part.get("shape")),
                        object.and_then(|part| part.get("dtype")),
                    ) else {
                        return Err(unexpected(path, key, wanted, part));
                    };
                    let (shape, dtype) = (shape(sizes, key, path)?, self::dtype(kind, key, path)?);
                    if shape.len() != 1 || !matches!(dtype, DType::I32 | DType::I64) {
                        return Err(unexpected(path, key, "integers of one dimension", part));
                    }
                    Ok(LeafSchema { dtype, shape })
                };
                let offsets = part("offsets")?;
                let lengths = entry.get("lengths").map(|_| part("lengths")).transpose()?;
                let count = offsets.shape[0].checked_sub(1);
                if count.is_none() || lengths.as_ref().is_some_and(|part| Some(part.shape[0]) != count) {
                    let wanted = "offsets, one more than components, and as many lengths as those";
                    return Err(unexpected(path, key, wanted, &Value::Object(entry.clone())));
                }
                let at = dim
                    .as_u64()
                    .and_then(|dim| usize::try_from(dim).ok())
                    .filter(|dim| (1..=sizes.len()).contains(dim))
                    .ok_or_else(|| {
                        unexpected(path, key, "the number of a dimension of the components", dim)
                    })?;
                RaggedLayout::Jagged {
                    values: sizes,
                    dim: at,
                    offsets,
                    lengths,
                }
            }
            Some(other) => return Err(unexpected(path, key, "the layout torch.jagged, or none", other)),
        };
        Ok(Self {
            entry: entry.clone(),
            dtype,
            layout,
        })
    }

    /// The files beside the values: what follows the key in their names, and what they hold.
    #[must_use]
    pub fn parts(&self) -> Vec<(&'static str, LeafSchema)> {
        match &self.layout {
            RaggedLayout::Strided(table) => vec![(
                SHAPE,
                LeafSchema {
                    dtype: DType::I64,
                    shape: table.to_vec(),
                },
            )],
            RaggedLayout::Jagged { offsets, lengths, .. } => std::iter::once((OFFSETS, offsets.clone()))
                .chain(lengths.iter().map(|lengths| (LENGTHS, lengths.clone())))
                .collect(),
        }
    }

    /// The leading dimensions that all components share, as far as the entry tells.
    #[must_use]
    pub fn leading(&self) -> Vec<u64> {
        match &self.layout {
            RaggedLayout::Strided([components, _]) => vec![*components],
            RaggedLayout::Jagged {
                values, dim, offsets, ..
            } => std::iter::once(offsets.shape[0].saturating_sub(1))
                .chain(values[..dim - 1].iter().copied())
                .collect(),
        }
    }

    /// What the file of values holds, by the content of the other files, in the order of [`Self::parts`].
    ///
    /// # Errors
    /// [`Error::Ragged`] where that content is not possible: components that overlap the end of the values, negative
    /// sizes, offsets that fall.
    pub fn values(&self, parts: &[&[u8]], path: &Path) -> Result<LeafSchema> {
        let fail = |what| Error::Ragged {
            path: path.into(),
            what,
        };
        let shape = match &self.layout {
            // Their table has rows without numbers, and no file.
            RaggedLayout::Strided([components, 0]) => vec![*components],
            RaggedLayout::Strided([_, dims]) => {
                let table = numbers(DType::I64, parts.first().copied().unwrap_or_default());
                if table.iter().any(|&size| size < 0) {
                    return Err(fail("a component has a negative size"));
                }
                let width = usize::try_from(*dims).unwrap_or(usize::MAX).max(1);
                let total = table.chunks(width).try_fold(0_i64, |total, row| {
                    let elements = row
                        .iter()
                        .try_fold(1_i64, |elements, &size| elements.checked_mul(size))?;
                    total.checked_add(elements)
                });
                let total = total.ok_or_else(|| fail("the components have more elements than any memory"))?;
                vec![u64::try_from(total).unwrap_or_default()]
            }
            RaggedLayout::Jagged {
                values,
                dim,
                offsets,
                lengths,
            } => {
                let starts = numbers(offsets.dtype, parts.first().copied().unwrap_or_default());
                let counts = lengths
                    .as_ref()
                    .map(|schema| numbers(schema.dtype, parts.get(1).copied().unwrap_or_default()));
                let rows = i64::try_from(values[dim - 1]).unwrap_or(i64::MAX);
                check_offsets(&starts, counts.as_deref(), rows).map_err(fail)?;
                values.clone()
            }
        };
        Ok(LeafSchema {
            dtype: self.dtype,
            shape,
        })
    }
}

/// Checks that the components that offsets, and lengths if there are any, describe lie within so many rows.
fn check_offsets(offsets: &[i64], lengths: Option<&[i64]>, rows: i64) -> Result<(), &'static str> {
    if offsets.first().is_some_and(|&first| first < 0) || offsets.last().is_some_and(|&last| last > rows) {
        return Err("an offset is outside of the values");
    }
    if offsets.windows(2).any(|pair| pair[0] > pair[1]) {
        return Err("the offsets fall");
    }
    let mut both = offsets.iter().zip(lengths.unwrap_or_default());
    let fits = |(&start, &length): (&i64, &i64)| {
        length >= 0 && start.checked_add(length).is_some_and(|end| end <= rows)
    };
    if both.all(fits) {
        Ok(())
    } else {
        Err("a component ends outside of the values")
    }
}

/// Integers in the bytes of a file.
fn numbers(dtype: DType, bytes: &[u8]) -> Vec<i64> {
    if dtype == DType::I32 {
        let items = bytes.chunks_exact(4);
        items
            .map(|item| i32::from_ne_bytes(std::array::from_fn(|at| item[at])).into())
            .collect()
    } else {
        let items = bytes.chunks_exact(8);
        items
            .map(|item| i64::from_ne_bytes(std::array::from_fn(|at| item[at])))
            .collect()
    }
}

fn dtype(value: &Value, key: &str, path: &Path) -> Result<DType> {
    value
        .as_str()
        .and_then(|name| DType::parse(name).ok())
        .ok_or_else(|| unexpected(path, key, "a data type of torch", value))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn schema(text: &str) -> Result<RaggedSchema> {
        let entry: Map<String, Value> = serde_json::from_str(text).unwrap();
        RaggedSchema::parse(&entry, "a", Path::new("meta.json"))
    }

    fn bytes(numbers: &[i64]) -> Vec<u8> {
        numbers.iter().flat_map(|number| number.to_ne_bytes()).collect()
    }

    const JAGGED: &str = r#"{"is_nested": true, "layout": "torch.jagged", "dtype": "torch.int8", "shape": [5, 2],
        "ragged_idx": 1, "offsets": {"dtype": "torch.int64", "shape": [3]}}"#;

    #[test]
    fn sizes_say_how_many_values_there_are() -> Result<()> {
        let found = schema(r#"{"is_nested": true, "dtype": "torch.float32", "shape": [2, 2]}"#)?;
        assert_eq!(found.leading(), [2]);
        let values = |sizes: &[i64]| found.values(&[&bytes(sizes)], Path::new("a"));
        assert_eq!(values(&[2, 3, 1, 4])?.shape, [10]);
        for wrong in [[2, -3, 1, 4], [i64::MAX, 2, 1, 1], [i64::MAX, 1, 1, 1]] {
            assert!(matches!(values(&wrong), Err(Error::Ragged { .. })), "{wrong:?}");
        }
        Ok(())
    }

    #[test]
    fn offsets_stay_within_the_values() -> Result<()> {
        let found = schema(JAGGED)?;
        assert_eq!(found.leading(), [2]);
        let values = |offsets: &[i64]| found.values(&[&bytes(offsets)], Path::new("a"));
        assert_eq!(values(&[0, 2, 5])?.shape, [5, 2]);
        assert_eq!(values(&[1, 1, 4])?.shape, [5, 2]);
        for wrong in [[0, 2, 6], [-1, 2, 5], [0, 3, 2]] {
            assert!(matches!(values(&wrong), Err(Error::Ragged { .. })), "{wrong:?}");
        }
        Ok(())
    }

    #[test]
    fn lengths_stay_within_the_values() -> Result<()> {
        let text = JAGGED.replace(
            r#""ragged_idx""#,
            r#""lengths": {"dtype": "torch.int32", "shape": [2]}, "ragged_idx""#,
        );
        let found = schema(&text)?;
        let values = |lengths: [i32; 2]| {
            let lengths: Vec<u8> = lengths.iter().flat_map(|length| length.to_ne_bytes()).collect();
            found.values(&[&bytes(&[0, 2, 5]), &lengths], Path::new("a"))
        };
        assert_eq!(values([2, 3])?.shape, [5, 2]);
        assert!(values([2, 4]).is_err());
        assert!(values([-1, 3]).is_err());
        Ok(())
    }

    #[test]
    fn entries_that_lie_are_refused() {
        for (from, to) in [
            ("[5, 2]", "[]"),
            ("[5, 2]", "[-5, 2]"),
            ("[5, 2]", "\"x\""),
            ("\"torch.int8\"", "3"),
            ("\"torch.jagged\"", "\"torch.sparse\""),
            ("\"ragged_idx\": 1", "\"ragged_idx\": 0"),
            ("\"ragged_idx\": 1", "\"ragged_idx\": 3"),
            ("[3]", "[0]"),
            ("[3]", "[3, 1]"),
            ("torch.int64", "torch.float32"),
            ("\"offsets\"", "\"other\""),
        ] {
            let text = JAGGED.replacen(from, to, 1);
            assert!(matches!(schema(&text), Err(Error::Metadata { .. })), "{text}");
        }
    }
}
