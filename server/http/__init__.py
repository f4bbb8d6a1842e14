"""HTTP/1.1: connections and their limits, requests and their answers, and ASGI applications behind them."""
