import { defineWorker, type Ctx } from "@teamsync/edge-worker";

function prepare(ctx: Ctx): void {
  ctx.storage.sql.exec(
    "CREATE TABLE IF NOT EXISTS notes (id INTEGER PRIMARY KEY AUTOINCREMENT, text TEXT NOT NULL, author TEXT NOT NULL)",
  );
}

// One function for each operation of worker.json.
export default defineWorker({
  "notes.add": (input: { text: string }, ctx) => {
    prepare(ctx);
    const { id } = ctx.storage.sql
      .exec("INSERT INTO notes (text, author) VALUES (?, ?) RETURNING id", input.text, ctx.caller.sub)
      .one<{ id: number }>();
    ctx.log.info("note added", { id });
    return { id };
  },

  "notes.list": (_input, ctx) => {
    prepare(ctx);
    return ctx.storage.sql.exec("SELECT id, text, author FROM notes ORDER BY id DESC LIMIT 100").toArray();
  },
});
