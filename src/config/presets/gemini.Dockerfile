# Gemini CLI for sandpen: `sandpen build --agent gemini`. Runs as any uid: nothing in it needs to be writable.
FROM docker.io/library/node:22-bookworm-slim

RUN apt-get update \
 && apt-get install --yes --no-install-recommends ca-certificates git openssh-client ripgrep \
 && rm -rf /var/lib/apt/lists/*

# Another version: --build-arg VERSION=1.2.3
ARG VERSION=latest
RUN npm install --global --no-audit --no-fund "@google/gemini-cli@${VERSION}" \
 && npm cache clean --force \
 && gemini --version

# The base image's own entry point turns an unknown command into a script for node.
ENTRYPOINT []
CMD ["bash"]
