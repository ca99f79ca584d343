"""The methods of every tensordict, a capability a file, each written once on the waist."""
