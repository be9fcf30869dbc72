// Serves SQS on a free port of the loopback interface and writes its address
// into the file that the argument names. The package's own command would listen
// on every interface.
import { renameSync, writeFileSync } from "node:fs";
import { buildApp } from "fauxqs";

const file = process.argv[2];
const app = buildApp({ logger: false });
const address = await app.listen({ port: 0, host: "127.0.0.1" });
writeFileSync(`${file}.new`, address);
renameSync(`${file}.new`, file); // so that nobody reads half of it
