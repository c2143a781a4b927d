# `sandpen build --agent opencode` builds this image of opencode. It can run as any uid, because
# nothing in the image has to be writable.
FROM docker.io/library/node:22-bookworm-slim

RUN apt-get update \
 && apt-get install --yes --no-install-recommends ca-certificates git openssh-client ripgrep \
 && rm -rf /var/lib/apt/lists/*

# Select another version with --build-arg VERSION=1.2.3.
ARG VERSION=latest
RUN npm install --global --no-audit --no-fund "opencode-ai@${VERSION}" \
 && npm cache clean --force \
 && opencode --version

# The entry point of the base image passes unknown commands to node as scripts.
ENTRYPOINT []
CMD ["bash"]
