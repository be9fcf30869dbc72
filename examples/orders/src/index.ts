// An order book for one department: real SQL, a price list as static data,
// and input and output checked by the schemas in worker.json.

import { defineWorker, OperationError, type Ctx } from "@teamsync/edge-worker";
import { currencyOf, productOf } from "./prices";
import { cancelOrder, getOrder, insertLine, insertOrder, listOrders, prepare, summarize } from "./store";

interface NewOrder {
  customer: string;
  note?: string;
  lines: { sku: string; quantity: number }[];
}

function createOrder(input: NewOrder, ctx: Ctx) {
  prepare(ctx);
  const lines = input.lines.map(({ sku, quantity }) => {
    const product = productOf(ctx, sku);
    if (!product) throw new OperationError(422, "product_unknown", `There is no product ${sku}`);
    return { sku, quantity, unit_cents: product.unit_cents };
  });
  // One transaction: an order never exists without its lines.
  const id = ctx.storage.transaction(() => {
    const order = insertOrder(ctx, {
      customer: input.customer,
      note: input.note ?? null,
      total_cents: lines.reduce((sum, line) => sum + line.quantity * line.unit_cents, 0),
      created_by: ctx.caller.sub,
      created_at: new Date().toISOString(),
    });
    lines.forEach((line, position) => insertLine(ctx, order, position, line));
    return order;
  });
  ctx.log.info("order created", { order: id, lines: lines.length });
  return { ...getOrder(ctx, id), currency: currencyOf(ctx) };
}

function cancel(input: { id: string }, ctx: Ctx) {
  prepare(ctx);
  const id = Number(input.id);
  if (!cancelOrder(ctx, id)) {
    const { status } = getOrder(ctx, id);
    throw new OperationError(409, "order_not_open", `Order ${id} is ${status}`);
  }
  return { id, status: "cancelled" };
}

function list(input: { status?: string; before?: string; limit?: string } | null, ctx: Ctx) {
  prepare(ctx);
  const limit = Number(input?.limit ?? 20);
  const orders = listOrders(ctx, input?.status ?? null, input?.before ? Number(input.before) : null, limit);
  const last = orders.at(-1);
  return { orders, next: last && orders.length === limit ? String(last.id) : null };
}

export default defineWorker({
  "orders.create": createOrder,
  "orders.get": (input: { id: string }, ctx) => {
    prepare(ctx);
    return { ...getOrder(ctx, Number(input.id)), currency: currencyOf(ctx) };
  },
  "orders.list": list,
  "orders.cancel": cancel,
  "stats.summary": (_input, ctx) => {
    prepare(ctx);
    return { ...summarize(ctx), currency: currencyOf(ctx) };
  },
});
