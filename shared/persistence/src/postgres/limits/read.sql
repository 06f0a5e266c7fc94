SELECT generation, number, document FROM harvest.limits
