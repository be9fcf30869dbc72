// IP addresses and CIDR ranges.

import { Number } from "./intrinsics";

/** Address is the bytes of an address: 4 or 16. */
type Address = readonly number[];

/** Range is the addresses that begin with the same bits. */
interface Range {
  address: Address;
  bits: number;
}

const octet = /^(0|[1-9][0-9]{0,2})$/;
const group = /^[0-9A-Fa-f]{1,4}$/;

function readIPv4(text: string): number[] | null {
  const parts = text.split(".");
  if (parts.length !== 4) return null;
  const bytes: number[] = [];
  for (const part of parts) {
    if (!octet.test(part) || Number(part) > 255) return null;
    bytes.push(Number(part));
  }
  return bytes;
}

/** readGroups reads groups between colons; the last may be an IPv4 address. */
function readGroups(text: string, last: boolean): number[] | null {
  if (text === "") return [];
  const parts = text.split(":");
  const bytes: number[] = [];
  for (let i = 0; i < parts.length; i++) {
    const part = parts[i]!;
    if (group.test(part)) {
      const value = Number("0x" + part);
      bytes.push(value >> 8, value & 255);
      continue;
    }
    const tail = last && i === parts.length - 1 ? readIPv4(part) : null;
    if (tail === null) return null;
    bytes.push(...tail);
  }
  return bytes;
}

function readIPv6(text: string): number[] | null {
  const halves = text.split("::");
  if (halves.length > 2) return null;
  const front = readGroups(halves[0]!, halves.length === 1);
  if (front === null) return null;
  if (halves.length === 1) return front.length === 16 ? front : null;
  const back = readGroups(halves[1]!, true);
  if (back === null || front.length + back.length > 14) return null;
  const bytes = [...front];
  while (bytes.length + back.length < 16) bytes.push(0);
  return [...bytes, ...back];
}

/** readBytes reads an address as it is written. */
function readBytes(text: string): Address | null {
  if (text.length > 45) return null;
  return text.includes(":") ? readIPv6(text) : readIPv4(text);
}

/** mapped tells an IPv4 address in the form of an IPv6 one. */
function mapped(address: Address): boolean {
  if (address.length !== 16) return false;
  for (let i = 0; i < 10; i++) if (address[i] !== 0) return false;
  return address[10] === 255 && address[11] === 255;
}

/**
 * readAddress reads an address without zone, or returns null. An IPv4 address
 * that is written as an IPv6 one is the IPv4 address.
 */
export function readAddress(text: string): Address | null {
  const address = readBytes(text);
  return address !== null && mapped(address) ? address.slice(12) : address;
}

/**
 * readRange reads a CIDR range, or returns null. The bits behind the prefix
 * must be 0, so that a slip does not pass for a range, and ranges of mapped
 * addresses are refused, because no address would be in them.
 */
export function readRange(text: string): Range | null {
  const at = text.indexOf("/");
  const address = at < 0 ? null : readBytes(text.slice(0, at));
  const length = text.slice(at + 1);
  if (address === null || mapped(address) || !octet.test(length)) return null;
  const bits = Number(length);
  if (bits > address.length * 8) return null;
  for (let bit = bits; bit < address.length * 8; bit++) {
    if (((address[bit >> 3]! >> (7 - (bit & 7))) & 1) !== 0) return null;
  }
  return { address, bits };
}

export function contains(range: Range, address: Address): boolean {
  if (range.address.length !== address.length) return false;
  for (let bit = 0; bit < range.bits; bit++) {
    const mask = 128 >> (bit & 7);
    if ((range.address[bit >> 3]! & mask) !== (address[bit >> 3]! & mask)) return false;
  }
  return true;
}
