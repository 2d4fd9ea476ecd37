// Makes fetch of Node versions without NODE_USE_ENV_PROXY use the proxy of the environment.
//
// Node's fetch asks one dispatcher for everything, which is found under a symbol that the `undici`
// library shares with it. This one sends https through CONNECT, and http to the proxy itself.
'use strict';

const net = require('node:net');
const tls = require('node:tls');

const DISPATCHER = Symbol.for('undici.globalDispatcher.1');
const [major, minor] = process.versions.node.split('.').map(Number);
const canItself = major > 24 || (major === 24 && minor >= 5) || (major === 22 && minor >= 21);
const doesItself = canItself && process.env.NODE_USE_ENV_PROXY === '1';
const given = process.env.HTTPS_PROXY || process.env.https_proxy;

function credentialsOf(proxy) {
  if (!proxy.username) return null;
  const pair = `${decodeURIComponent(proxy.username)}:${decodeURIComponent(proxy.password)}`;
  return `Basic ${Buffer.from(pair).toString('base64')}`;
}

function connectThrough(proxy, options, done) {
  const port = Number(options.port) || 443;
  const authority = `${options.hostname}:${port}`;
  const socket = net.connect({ host: proxy.hostname, port: Number(proxy.port) });
  const fail = (error) => { socket.destroy(); done(error, null); };
  const credentials = credentialsOf(proxy);
  const shown = credentials ? `Proxy-Authorization: ${credentials}\r\n` : '';
  let head = '';
  const read = (data) => {
    head += data.toString('latin1');
    const end = head.indexOf('\r\n\r\n');
    if (end < 0) return;
    socket.removeListener('data', read);
    socket.removeListener('error', fail);
    const status = Number(head.split(' ')[1]);
    if (status !== 200) {
      const reason = /^x-tollhouse-egress: *(.*)$/im.exec(head);
      fail(new Error(`the proxy refused ${authority}: ${status} ${reason ? reason[1].trim() : ''}`));
      return;
    }
    const servername = options.servername || options.hostname;
    const secured = tls.connect({ ALPNProtocols: ['http/1.1'], socket, servername });
    secured.once('error', (error) => done(error, null));
    secured.once('secureConnect', () => done(null, secured));
  };
  socket.once('error', fail);
  socket.on('data', read);
  socket.write(`CONNECT ${authority} HTTP/1.1\r\nHost: ${authority}\r\n${shown}\r\n`);
}

function install(proxy) {
  if (!globalThis.fetch) return;
  new Request('http://localhost/'); // the first use of fetch makes the dispatcher
  const found = globalThis[DISPATCHER];
  const Agent = found.constructor;
  const secured = new Agent({ connect: (options, done) => connectThrough(proxy, options, done) });
  const plain = new Agent();
  const credentials = credentialsOf(proxy);

  class Proxied extends Agent {
    dispatch(options, handler) {
      const origin = new URL(options.origin);
      if (origin.protocol === 'https:') return secured.dispatch(options, handler);
      const added = { host: origin.host };
      if (credentials) added['proxy-authorization'] = credentials;
      const headers = Array.isArray(options.headers)
        ? [...options.headers, ...Object.entries(added).flat()]
        : { ...options.headers, ...added };
      const target = `${origin.origin}${options.path}`;
      return plain.dispatch({ ...options, origin: proxy.origin, path: target, headers }, handler);
    }
  }
  globalThis[DISPATCHER] = new Proxied();
}

if (given && !doesItself) install(new URL(given));
