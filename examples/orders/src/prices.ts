import type { Ctx } from "@teamsync/edge-worker";

export interface Product {
  readonly name: string;
  readonly unit_cents: number;
}

interface PriceList {
  readonly currency: string;
  readonly products: Readonly<Record<string, Product>>;
}

function priceList(ctx: Ctx): PriceList {
  return ctx.staticData["products.json"] as unknown as PriceList;
}

export function productOf(ctx: Ctx, sku: string): Product | null {
  const { products } = priceList(ctx);
  return Object.hasOwn(products, sku) ? products[sku] ?? null : null;
}

/** The runtime configuration may name another currency for display. */
export function currencyOf(ctx: Ctx): string {
  const configured = ctx.config["currency"];
  return typeof configured === "string" ? configured : priceList(ctx).currency;
}
