# `sandpen build --agent qwen` builds this image of Qwen Code. It can run as any uid, because
# nothing in the image has to be writable.
FROM docker.io/library/node:22-bookworm-slim

RUN apt-get update \
 && apt-get install --yes --no-install-recommends ca-certificates git openssh-client ripgrep \
 && rm -rf /var/lib/apt/lists/*

# Select another version with --build-arg VERSION=1.2.3.
ARG VERSION=latest
RUN npm install --global --no-audit --no-fund "@qwen-code/qwen-code@${VERSION}" \
 && npm cache clean --force \
 && qwen --version

# The entry point of the base image passes unknown commands to node as scripts.
ENTRYPOINT []
CMD ["bash"]
