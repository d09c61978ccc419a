import java.io.*;
import java.lang.reflect.Field;
import java.lang.reflect.InvocationHandler;
import java.lang.reflect.InvocationTargetException;
import java.lang.reflect.Method;
import java.lang.reflect.Proxy;
import java.net.InetAddress;
import java.net.ServerSocket;
import java.net.Socket;
import java.nio.file.Files;
import java.util.List;
import java.util.Map;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.crypto.key.KeyProvider;
import org.apache.hadoop.fs.BlockLocation;
import org.apache.hadoop.fs.FSDataInputStream;
import org.apache.hadoop.fs.FileStatus;
import org.apache.hadoop.fs.FileSystem;
import org.apache.hadoop.fs.FileUtil;
import org.apache.hadoop.fs.LocatedFileStatus;
import org.apache.hadoop.fs.Path;
import org.apache.hadoop.fs.RemoteIterator;
import org.apache.hadoop.fs.permission.FsPermission;
import org.apache.hadoop.ha.HAServiceProtocol.RequestSource;
import org.apache.hadoop.ha.HAServiceProtocol.StateChangeRequestInfo;
import org.apache.hadoop.hdfs.HdfsConfiguration;
import org.apache.hadoop.hdfs.protocol.ClientProtocol;
import org.apache.hadoop.hdfs.protocol.HdfsConstants.SafeModeAction;
import org.apache.hadoop.hdfs.server.datanode.DataNode;
import org.apache.hadoop.hdfs.server.namenode.NameNode;
import org.apache.hadoop.metrics2.lib.DefaultMetricsSystem;

/** One daemon: prints its port(s), and lives until stdin ends or its parent is no longer PARENT. */
public class Node {
  public static void main(String[] args) throws Exception {
    PrintStream out = System.out;
    System.setOut(System.err);
    Configuration conf = new HdfsConfiguration();
    new Thread(new Watchdog(args[1], new File(args[2]))).start();
    if (!args[0].equals("datanode")) {
      File image = new File(args[2], "dfs/name/current/VERSION");
      DefaultMetricsSystem.setMiniClusterMode(true);  // to format in the same JVM
      if (!image.exists()) NameNode.format(conf);
      NameNode node = NameNode.createNameNode(new String[0], conf);
      Patient.patch(node);
      FileSystem.setDefaultUri(conf, "hdfs://127.0.0.1:" + node.getNameNodeAddress().getPort());
      ServerSocket side = new ServerSocket(0, 50, InetAddress.getByName("127.0.0.1"));
      out.println(node.getNameNodeAddress().getPort() + " " + side.getLocalPort());
      FileSystem fs = FileSystem.newInstance(conf);  // the cached one is closed when the NameNode becomes a standby
      if (args[0].equals("archive")) useAll(conf, fs);
      while (true) new Thread(new Call(side.accept(), fs, node)).start();
    }
    FileSystem.setDefaultUri(conf, args[3]);
    DataNode node = DataNode.createDataNode(new String[0], conf);
    out.println(node.getXferPort());
  }

  /** Has most classes of both daemons loaded, and ends: an archive is made of them. */
  private static void useAll(Configuration conf, FileSystem fs) throws Exception {
    DataNode.createDataNode(new String[0], conf);
    Path path = null;
    for (boolean written = false; !written; Thread.sleep(50)) {
      path = new Path("/folder/" + System.nanoTime());
      try {
        OutputStream file = fs.create(path);
        file.write(1);
        file.close();
        written = true;
      } catch (IOException e) { }  // the NameNode does not know the DataNode yet
    }
    FSDataInputStream file = fs.open(path);
    file.read();
    file.close();
    fs.listStatus(path.getParent());
    fs.delete(path.getParent(), true);
    System.exit(0);
  }

  /** Ends the JVM with its parent; a forked child may hold stdin open, so the parent is polled. */
  static class Watchdog implements Runnable {
    private final String parent;
    private final File root;
    Watchdog(String parent, File root) { this.parent = parent; this.root = root; }
    public void run() {
      try {
        while (System.in.available() == 0 && parent.equals(parentNow())) Thread.sleep(200);
      } catch (Exception e) {
        e.printStackTrace();
      }
      FileUtil.fullyDelete(root);
      Runtime.getRuntime().halt(0);
    }
    private String parentNow() throws IOException {
      String stat = new String(Files.readAllBytes(new File("/proc/self/stat").toPath()), "UTF-8");
      return stat.substring(stat.lastIndexOf(')') + 2).split(" ")[1];
    }
  }

  /** The NameNode's face to clients, where `complete` waits until the block is reported. */
  static class Patient implements InvocationHandler {
    private final Object namenode;
    Patient(Object namenode) { this.namenode = namenode; }
    static void patch(NameNode node) throws Exception {
      Object server = field(node.getRpcServer(), "clientRpcServer");
      Map[] maps = (Map[]) ((List) field(server, "protocolImplMapArray")).toArray(new Map[0]);
      for (int i = 0; i < maps.length; i++) {
        Object[] services = maps[i] == null ? new Object[0] : maps[i].values().toArray();
        for (int j = 0; j < services.length; j++) patchService(field(services[j], "protocolImpl"));
      }
    }
    private static void patchService(Object service) throws Exception {
      if (!service.getClass().getName().contains("ClientNamenodeProtocolProtos")) return;
      Object translator = field(service, "val$impl");
      Field server = translator.getClass().getDeclaredField("server");
      server.setAccessible(true);
      server.set(translator, Proxy.newProxyInstance(Node.class.getClassLoader(),
          new Class[] {ClientProtocol.class}, new Patient(server.get(translator))));
    }
    static Object field(Object of, String name) throws Exception {
      for (Class type = of.getClass(); type != null; type = type.getSuperclass()) {
        try {
          Field field = type.getDeclaredField(name);
          field.setAccessible(true);
          return field.get(of);
        } catch (NoSuchFieldException e) { }
      }
      throw new NoSuchFieldException(name);
    }
    public Object invoke(Object self, Method method, Object[] args) throws Throwable {
      try {
        Object answer = method.invoke(namenode, args);
        for (int i = 0; i < 300 && method.getName().equals("complete"); i++) {
          if (Boolean.TRUE.equals(answer)) break;
          Thread.sleep(1);
          answer = method.invoke(namenode, args);
        }
        return answer;
      } catch (InvocationTargetException e) {
        throw e.getCause();
      }
    }
  }

  /** One call of the side channel: op, path, argument, body; then status byte and answer. */
  static class Call implements Runnable {
    private final Socket socket;
    private final FileSystem fs;
    private final NameNode node;
    Call(Socket socket, FileSystem fs, NameNode node) { this.socket = socket; this.fs = fs; this.node = node; }
    public void run() {
      try {
        DataInputStream in = new DataInputStream(new BufferedInputStream(socket.getInputStream()));
        DataOutputStream out = new DataOutputStream(
            new BufferedOutputStream(socket.getOutputStream(), 65536));
        try {
          answer(in, out);
        } catch (Throwable e) {
          out.writeByte(1);
          out.write(e.toString().getBytes("UTF-8"));
        }
        out.flush();
        socket.shutdownOutput();
        while (in.skip(65536) > 0 || in.read() >= 0) { }  // a reset would lose the answer
        socket.close();
      } catch (IOException e) {
        e.printStackTrace();
      }
    }
    private void answer(DataInputStream in, DataOutputStream out) throws IOException {
      String op = text(in);
      Path path = new Path(null, null, text(in));
      String arg = text(in);
      if (op.equals("namenode")) { administer(arg); out.writeByte(0); return; }
      if (op.equals("get")) { get(path, out); return; }
      if (op.equals("ls")) { ls(path, arg.equals("r"), out); return; }
      if (op.equals("put")) put(path, Long.parseLong(arg), in.readShort(), in);
      else if (op.equals("rm")) check(fs.delete(path, true), "nothing at " + path);
      else if (op.equals("replicas")) awaitReplicas(path, Integer.parseInt(arg));
      else if (op.equals("mkdir")) check(fs.mkdirs(path), "cannot mkdir " + path);
      else if (op.equals("chmod")) fs.setPermission(path, new FsPermission(Short.parseShort(arg, 8)));
      else if (op.equals("chown")) fs.setOwner(path, arg, null);
      else throw new IOException("no such call: " + op);
      out.writeByte(0);
    }
    private void administer(String what) throws IOException {
      StateChangeRequestInfo byUser = new StateChangeRequestInfo(RequestSource.REQUEST_BY_USER);
      if (what.equals("active")) node.getRpcServer().transitionToActive(byUser);
      else if (what.equals("standby")) node.getRpcServer().transitionToStandby(byUser);
      else if (what.equals("safe")) node.getRpcServer().setSafeMode(SafeModeAction.SAFEMODE_ENTER, false);
      else if (what.startsWith("snapshot ")) snapshot(what.split(" ")[1], what.split(" ")[2]);
      else if (what.startsWith("encrypt ")) encrypt(what.split(" ")[1]);
      else if (what.equals("unsafe")) node.getRpcServer().setSafeMode(SafeModeAction.SAFEMODE_LEAVE, false);
      else throw new IOException("no such state: " + what);
    }
    private void snapshot(String path, String name) throws IOException {
      node.getRpcServer().allowSnapshot(path);
      node.getRpcServer().createSnapshot(path, name);
    }
    private void encrypt(String path) throws IOException {
      try {
        KeyProvider keys = (KeyProvider) Patient.field(node.getNamesystem(), "provider");
        KeyProvider.Options options = new KeyProvider.Options(new HdfsConfiguration());
        options.setBitLength(128);
        keys.createKey("key", options);
        keys.flush();
      } catch (Throwable e) {
        throw new IOException(e.toString());
      }
      node.getRpcServer().createEncryptionZone(path, "key");
    }
    private void put(Path path, long blockSize, short replication, DataInputStream in) throws IOException {
      OutputStream file = fs.create(path, true, 65536, replication, blockSize);
      copy(in, file, in.readLong());
      file.close();
    }
    // A DataNode may report a replica by its next heartbeat: until then nobody is told of it.
    private void awaitReplicas(Path path, int replication) throws IOException {
      for (int wait = 0; wait < 200 && !replicated(path, replication); wait++) {
        try {
          Thread.sleep(50);
        } catch (InterruptedException e) {
          return;
        }
      }
    }
    private boolean replicated(Path path, int replication) throws IOException {
      RemoteIterator<LocatedFileStatus> files = fs.listFiles(path, true);
      while (files.hasNext())
        for (BlockLocation block : ((LocatedFileStatus) files.next()).getBlockLocations())
          if (block.getNames().length < replication) return false;
      return true;
    }
    private void get(Path path, DataOutputStream out) throws IOException {
      FSDataInputStream file = fs.open(path);
      try {
        long size = fs.getFileStatus(path).getLen();
        out.writeByte(0);
        out.writeLong(size);
        copy(file, out, size);
      } finally {
        file.close();
      }
    }
    private void ls(Path path, boolean recursive, DataOutputStream out) throws IOException {
      ByteArrayOutputStream bytes = new ByteArrayOutputStream();
      list(path, recursive, new DataOutputStream(bytes));
      out.writeByte(0);
      out.write(bytes.toByteArray());
    }
    private void list(Path path, boolean recursive, DataOutputStream out) throws IOException {
      FileStatus[] all = fs.listStatus(path);
      for (int i = 0; i < all.length; i++) {
        byte[] name = all[i].getPath().toUri().getPath().getBytes("UTF-8");
        out.writeInt(name.length);
        out.write(name);
        out.writeByte(all[i].isDirectory() ? 1 : 0);
        out.writeLong(all[i].getLen());
        if (recursive && all[i].isDirectory()) list(all[i].getPath(), true, out);
      }
    }
    private static void copy(InputStream in, OutputStream out, long size) throws IOException {
      byte[] buffer = new byte[65536];
      while (size > 0) {
        int n = in.read(buffer, 0, (int) Math.min(size, (long) buffer.length));
        if (n < 0) throw new EOFException("short by " + size + " bytes");
        out.write(buffer, 0, n);
        size -= n;
      }
    }
    private static void check(boolean done, String error) throws IOException {
      if (!done) throw new IOException(error);
    }
    private static String text(DataInputStream in) throws IOException {
      byte[] bytes = new byte[in.readInt()];
      in.readFully(bytes);
      return new String(bytes, "UTF-8");
    }
  }
}
