"""What the integration suites share: servers, repositories, data types, plain clients."""
