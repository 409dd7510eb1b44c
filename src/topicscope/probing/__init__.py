"""The probe: topic structure in any transformer that offers embeddings and attention, on any corpus."""
