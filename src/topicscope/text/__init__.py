"""Corpora and tokenizers: from files to documents to passages of tokens."""
