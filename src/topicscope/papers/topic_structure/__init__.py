"""How Do Transformers Learn Topic Structure: Towards a Mechanistic Understanding (Li, Li and Risteski, 2023)."""
