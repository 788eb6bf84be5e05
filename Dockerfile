# The demo as one image, from the locked packages.
FROM python:3.13-slim

RUN useradd --create-home milepost
COPY requirements.lock /src/
RUN pip install --no-cache-dir --require-hashes --no-deps -r /src/requirements.lock
COPY . /src
RUN pip install --no-cache-dir --no-deps --no-build-isolation /src

USER milepost
WORKDIR /tmp
CMD ["milepost", "demo"]
