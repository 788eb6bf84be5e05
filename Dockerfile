# The demo as one image, from the locked packages. Images of services are built in the same way (docs/deploy.md).
FROM python:3.13-slim

# By its number, so that a cluster can see that it is not root.
RUN useradd --create-home --uid 10001 milepost
COPY requirements.lock /src/
RUN pip install --no-cache-dir --require-hashes --no-deps -r /src/requirements.lock
COPY . /src
RUN pip install --no-cache-dir --no-deps --no-build-isolation /src

USER 10001
WORKDIR /tmp
CMD ["milepost", "demo"]
