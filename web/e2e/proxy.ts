import { createServer, request, type Server } from "node:http";
import type { AddressInfo, Socket } from "node:net";
import { SERVER } from "./environment.ts";

/** A proxy that puts a path prefix before the server, as those of notebooks and gateways do. */
export class PrefixProxy {
  private readonly sockets = new Set<Socket>();

  private constructor(
    private readonly server: Server,
    private readonly prefix: string,
  ) {
    server.on("connection", (socket: Socket) => {
      this.sockets.add(socket);
      socket.on("close", () => this.sockets.delete(socket));
    });
  }

  static async start(prefix: string): Promise<PrefixProxy> {
    const target = new URL(SERVER);
    const server = createServer((incoming, answer) => {
      const path = incoming.url ?? "/";
      if (!path.startsWith(prefix)) {
        answer.writeHead(404).end(`outside of ${prefix}`);
        return;
      }
      const forwarded = request(
        {
          host: target.hostname,
          port: target.port,
          method: incoming.method,
          path: `/${path.slice(prefix.length)}`,
          headers: { ...incoming.headers, host: target.host },
        },
        (received) => {
          answer.writeHead(received.statusCode ?? 502, received.headers);
          received.pipe(answer);
        },
      );
      forwarded.on("error", () => answer.destroy());
      answer.on("close", () => forwarded.destroy());
      incoming.pipe(forwarded);
    });
    await new Promise<void>((listening) => server.listen(0, "127.0.0.1", listening));
    return new PrefixProxy(server, prefix);
  }

  get address(): string {
    const { port } = this.server.address() as AddressInfo;
    return `http://127.0.0.1:${port}${this.prefix}`;
  }

  /** Cuts all connections, as a network that fails for a moment. */
  cut(): void {
    for (const socket of this.sockets) socket.destroy();
  }

  close(): void {
    this.cut();
    this.server.close();
  }
}
