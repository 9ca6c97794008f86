"""General benchmarks. Inside: graders, by which a reply is found right or wrong."""
