# `sandpen build --agent goose` builds this image of Goose. It can run as any uid, because nothing in the
# image has to be writable.
FROM docker.io/library/debian:12-slim

RUN apt-get update \
 && apt-get install --yes --no-install-recommends bzip2 ca-certificates curl git libgomp1 libxcb1 openssh-client ripgrep \
 && rm -rf /var/lib/apt/lists/*

# Select another version with --build-arg VERSION=v1.2.3.
ARG VERSION=stable
RUN curl -fsSL "https://github.com/block/goose/releases/download/${VERSION}/download_cli.sh" -o /tmp/install \
 && CONFIGURE=false GOOSE_BIN_DIR=/usr/local/bin bash /tmp/install \
 && rm /tmp/install \
 && goose --version

CMD ["bash"]
