// A truck company that answers commands over Kafka. It needs a Kafka client and nothing else: a command is a
// CloudEvent in binary mode, and a reply is another one that echoes a few headers.

import { createHash } from "node:crypto";
import process from "node:process";
import { Kafka, logLevel } from "kafkajs";

const brokers = (process.env.KAFKA ?? "localhost:9092").split(",");
const topic = process.env.COMMANDS ?? "trucks";
const group = process.env.GROUP ?? "trucks";

// What has been done, by operation. A real company keeps these rows in its database and writes them in the transaction
// of the booking, so that neither a crash nor another process forgets them.
const memory = new Map();
const bookings = [];

const text = (value) => value?.toString("utf8");

function book(command) {
  if (command.truck.startsWith("no")) {
    return { outcome: "refused", code: "NO_TRUCK", type: "truck.book.refused" };
  }
  bookings.push(command.truck);
  return { outcome: "done", type: "truck.booked", body: { truck: command.truck, plate: `N-${command.truck}` } };
}

function cancel(command) {
  bookings.splice(bookings.indexOf(command.truck), 1);
  return { outcome: "done", type: "truck.cancelled", body: { truck: command.truck } };
}

// Do at most once, undo at most once, and never do what was undone before.
function answer(type, command, headers) {
  const undo = type === "truck.cancel";
  const operation = headers["milepost-run"]
    ? `${headers.ce_tenant ?? ""}|${headers["milepost-run"]}|${headers["milepost-step"]}`
    : headers.ce_id;
  const done = memory.get(operation) ?? {};
  memory.set(operation, done);
  if (undo) {
    done.do ??= { outcome: "refused", code: "UNDONE_BEFORE", type: "truck.book.refused" };
    done.undo ??=
      done.do.outcome === "done"
        ? cancel(command)
        : { outcome: "nothing-to-undo", type: "truck.cancel.nothing-to-undo" };
  } else {
    done.do ??= book(command);
  }
  const found = undo ? done.undo : done.do;
  // The same operation is answered under the same id, so that the requester applies one of several copies.
  const id = createHash("sha256").update(`${operation}|${type}`).digest("hex").slice(0, 32);
  return { ...found, id };
}

function reply(command, found, headers, key) {
  const echoed = ["milepost-run", "milepost-step", "milepost-direction", "milepost-attempt", "traceparent", "tracestate"];
  const negative = {
    code: found.code ?? "NOTHING_TO_UNDO",
    message: "",
    command: headers.ce_id,
    run: headers["milepost-run"] ?? "",
    step: headers["milepost-step"] ?? "",
    direction: headers["milepost-direction"] ?? "",
  };
  const out = {
    ce_specversion: "1.0",
    ce_id: found.id,
    ce_source: "/truck-company",
    ce_type: found.type,
    ce_time: new Date().toISOString(),
    ce_eventversion: "1",
    ce_correlationid: headers.ce_correlationid ?? headers.ce_id,
    ce_causationid: headers.ce_id,
    "content-type": "application/json",
    "milepost-outcome": found.outcome,
  };
  if (found.code) out["milepost-code"] = found.code;
  if (headers.ce_tenant) out.ce_tenant = headers.ce_tenant;
  for (const name of echoed) {
    if (headers[name] !== undefined) out[name] = headers[name];
  }
  return { key, value: JSON.stringify(found.body ?? negative), headers: out };
}

const kafka = new Kafka({ clientId: "truck-company", brokers, logLevel: logLevel.ERROR });
const producer = kafka.producer({ idempotent: true, maxInFlightRequests: 1 });
const consumer = kafka.consumer({ groupId: group });

async function eachMessage({ message }) {
  const headers = Object.fromEntries(
    Object.entries(message.headers ?? {}).map(([name, value]) => [name.toLowerCase(), text(value)]),
  );
  if (!["truck.book", "truck.cancel"].includes(headers.ce_type)) return;
  const command = JSON.parse(text(message.value));
  const found = answer(headers.ce_type, command, headers);
  await producer.send({
    topic: headers["milepost-reply-to"] ?? "truck-replies",
    acks: -1,
    messages: [reply(command, found, headers, message.key)],
  });
  console.log(`${headers.ce_type} ${command.truck}: ${found.outcome}; booked: ${bookings.length}`);
}

async function stop() {
  await consumer.disconnect();
  await producer.disconnect();
}

for (const signal of ["SIGINT", "SIGTERM"]) {
  process.once(signal, () => stop().then(() => process.exit(0)));
}

const admin = kafka.admin();
await admin.connect();
await admin.createTopics({ topics: [{ topic }] });
await admin.disconnect();
await producer.connect();
await consumer.connect();
await consumer.subscribe({ topic, fromBeginning: true });
consumer.on(consumer.events.GROUP_JOIN, () => console.log("ready"));
await consumer.run({ eachMessage });
