# decksmith on any laptop with Docker or Podman: docs/platforms.md says how, and what the flags are for.
#   docker build --platform linux/amd64 -t decksmith .
# The base is that of containers/*.def. x86-64 only: the browser of the lock has no other build.
ARG BASE=docker.io/library/debian@sha256:4724b8cc51e33e398f0e2e15e18d5ec2851ff0c2280647e1310bc1642182655d
FROM ${BASE}

RUN apt-get -qq update \
 && apt-get -qq install -y --no-install-recommends ca-certificates git make python3-venv > /dev/null \
 && rm -rf /var/lib/apt/lists/*

# An ordinary user, who may build walls around decks where the container's filter lets anybody.
RUN useradd --create-home --uid 1000 deck && install -d -o deck -g deck /decksmith /decksmith/results
USER deck
WORKDIR /decksmith
COPY --chown=deck:deck . .
# Everything that `make baseline` would fetch: afterwards it needs no network.
RUN make setup && rm -rf ~/.cache ~/.npm

ENV LC_ALL=C.UTF-8
CMD ["make", "baseline"]
