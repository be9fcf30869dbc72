import { OperationError, type Ctx, type SqlRow } from "@teamsync/edge-worker";
import schema from "./schema.sql";
import { productOf } from "./prices";

interface OrderRow extends SqlRow {
  id: number;
  customer: string;
  note: string | null;
  status: "open" | "cancelled";
  total_cents: number;
  created_by: string;
  created_at: string;
}

interface NewOrderRow {
  customer: string;
  note: string | null;
  total_cents: number;
  created_by: string;
  created_at: string;
}

interface LineRow extends SqlRow {
  sku: string;
  quantity: number;
  unit_cents: number;
}

/** Every statement is "create if missing", so each release may run it on any state. */
export function prepare(ctx: Ctx): void {
  ctx.storage.sql.exec(schema);
}

export function insertOrder(ctx: Ctx, order: NewOrderRow): number {
  return ctx.storage.sql
    .exec(
      "INSERT INTO orders (customer, note, total_cents, created_by, created_at) VALUES (?, ?, ?, ?, ?) RETURNING id",
      order.customer, order.note, order.total_cents, order.created_by, order.created_at,
    )
    .one<{ id: number }>().id;
}

export function insertLine(ctx: Ctx, order: number, position: number, line: LineRow): void {
  ctx.storage.sql.exec(
    "INSERT INTO order_lines (order_id, position, sku, quantity, unit_cents) VALUES (?, ?, ?, ?, ?)",
    order, position, line.sku, line.quantity, line.unit_cents,
  );
}

export function getOrder(ctx: Ctx, id: number) {
  const order = ctx.storage.sql.exec("SELECT * FROM orders WHERE id = ?", id).first<OrderRow>();
  if (!order) throw new OperationError(404, "order_not_found", `There is no order ${id}`);
  const lines = ctx.storage.sql
    .exec("SELECT sku, quantity, unit_cents FROM order_lines WHERE order_id = ? ORDER BY position", id)
    .toArray<LineRow>()
    .map((line) => ({ ...line, name: productOf(ctx, line.sku)?.name ?? line.sku }));
  return { ...order, lines };
}

export function listOrders(ctx: Ctx, status: string | null, before: number | null, limit: number): OrderRow[] {
  return ctx.storage.sql
    .exec(
      "SELECT * FROM orders WHERE (?1 IS NULL OR status = ?1) AND (?2 IS NULL OR id < ?2) ORDER BY id DESC LIMIT ?3",
      status, before, limit,
    )
    .toArray<OrderRow>();
}

/** Returns whether an open order was cancelled. */
export function cancelOrder(ctx: Ctx, id: number): boolean {
  return ctx.storage.sql
    .exec("UPDATE orders SET status = 'cancelled' WHERE id = ? AND status = 'open' RETURNING id", id)
    .length === 1;
}

export function summarize(ctx: Ctx) {
  const totals = ctx.storage.sql
    .exec(`SELECT
        COALESCE(SUM(status = 'open'), 0) AS open,
        COALESCE(SUM(status = 'cancelled'), 0) AS cancelled,
        COALESCE(SUM(CASE WHEN status = 'open' THEN total_cents END), 0) AS open_total_cents
      FROM orders`)
    .one<{ open: number; cancelled: number; open_total_cents: number }>();
  const best_sellers = ctx.storage.sql
    .exec(`SELECT sku, SUM(quantity) AS quantity FROM order_lines
      JOIN orders ON orders.id = order_id WHERE status = 'open'
      GROUP BY sku ORDER BY quantity DESC, sku LIMIT 5`)
    .toArray<{ sku: string; quantity: number }>();
  return { ...totals, best_sellers };
}
