"""The paper as claims: what each says, how it is measured, and the experiments that it needs."""
