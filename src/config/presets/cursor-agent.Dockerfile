# `sandpen build --agent cursor-agent` builds this image of Cursor's CLI. It can run as any uid, because nothing in the
# image has to be writable.
FROM docker.io/library/debian:12-slim

RUN apt-get update \
 && apt-get install --yes --no-install-recommends bzip2 ca-certificates curl git libgomp1 libxcb1 openssh-client ripgrep \
 && rm -rf /var/lib/apt/lists/*

RUN curl -fsSL https://cursor.com/install -o /tmp/install \
 && HOME=/opt/cursor bash /tmp/install \
 && rm /tmp/install \
 && chmod -R a+rX /opt/cursor \
 && ln -s /opt/cursor/.local/bin/cursor-agent /usr/local/bin/cursor-agent \
 && cursor-agent --version

CMD ["bash"]
