"""Wire formats, a folder each: parse, render, stream, errors."""
