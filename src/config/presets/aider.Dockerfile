# `sandpen build --agent aider` builds this image of Aider. It can run as any uid, because nothing
# in the image has to be writable.
FROM docker.io/library/python:3.12-slim-bookworm

RUN apt-get update \
 && apt-get install --yes --no-install-recommends ca-certificates git openssh-client ripgrep \
 && rm -rf /var/lib/apt/lists/*

# Select another version with --build-arg VERSION=1.2.3.
ARG VERSION=0.86.2
RUN pip install --no-cache-dir --root-user-action=ignore "aider-chat==${VERSION}" \
 && aider --version

# The user in the container cannot install updates; rebuild the image instead.
ENV AIDER_CHECK_UPDATE=false

CMD ["bash"]
