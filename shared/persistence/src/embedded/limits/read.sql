SELECT generation, number, document FROM limits
