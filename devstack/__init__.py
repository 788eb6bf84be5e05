"""Local PostgreSQL, Kafka and Jaeger for demo and tests.

Each part is looked for in this order: an environment variable that points at a running one (``given``),
Docker (``docker``), a recipe without Docker (``process``). Ports are free ones chosen at start; data lies in
temporary folders, or under MILEPOST_DEVSTACK_DATA; downloads and builds lie in MILEPOST_CACHE.
MILEPOST_DEVSTACK_DOCKER=no does without Docker.

    stack       up, down, running: the parts together
    state       the file that notes what ``up`` started
    server      what all servers share; postgres, kafka, jaeger are the three
    machine     what a server runs in: process, docker
    guard       ends a server whose starter has died
    databases   databases on a running server;  probe: is a broker ready;  ports: free ports and waiting
"""
