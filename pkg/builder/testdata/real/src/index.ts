// One operation for each kind of package: ES modules and CommonJS, with and
// without exports, with a browser field, with many dependencies of their own.
import { defineWorker } from "@teamsync/edge-worker";
import { addDays, formatISO } from "date-fns";
import { Hono } from "hono";
import { AutoRouter } from "itty-router";
import lodash from "lodash";
import chunk from "lodash/chunk.js";
import { fromMarkdown } from "mdast-util-from-markdown";
import ms from "ms";
import qs from "qs";
import { from, map, toArray, lastValueFrom } from "rxjs";
import { z } from "zod";

const app = new Hono().get("/hello/:name", (c) => c.json({ hello: c.req.param("name") }));
const router = AutoRouter().get("/sum/:a/:b", ({ a, b }: Record<string, string>) => Number(a) + Number(b));
const Order = z.object({ id: z.number().int().positive(), note: z.string().default("none") });

export default defineWorker({
  hono: async (input: { name: string }) => (await app.request(`/hello/${input.name}`)).json(),
  zod: (input: unknown) => {
    const read = Order.safeParse(input);
    return { ok: read.success, value: read.success ? read.data : read.error.issues.map((i) => i.path.join(".")) };
  },
  itty: async (input: { a: number; b: number }) =>
    (await router.fetch(new Request(`https://worker/sum/${input.a}/${input.b}`))).json(),
  dates: () => formatISO(addDays(new Date(2026, 1, 27), 2), { representation: "date" }),
  commonjs: () => ({
    ms: ms("2 days"),
    qs: qs.parse("a[b]=1&c=2"),
    back: qs.stringify({ a: { b: "ü" } }),
    lodash: lodash.camelCase("edge worker"),
    chunk: chunk([1, 2, 3], 2),
  }),
  markdown: () => fromMarkdown("# A *title*").children.map((node) => node.type),
  streams: () => lastValueFrom(from([1, 2, 3]).pipe(map((n) => n * n), toArray())),
});
