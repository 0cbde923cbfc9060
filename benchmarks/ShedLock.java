import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.sql.Connection;
import java.sql.DriverManager;
import java.sql.PreparedStatement;
import java.sql.SQLException;

/**
 * Sends what ShedLock 7.9 sends with JdbcTemplateLockProvider and usingDbTime(), to a
 * record that it knows. For each line "pair" or "try" of its input it prints how many
 * nanoseconds that took.
 */
class ShedLock {
    static final String NOW = "timezone('utc', CURRENT_TIMESTAMP)";
    static final String LOCK = "UPDATE shedlock SET lock_until = " + NOW
        + " + cast(? as interval), locked_at = " + NOW + ", locked_by = ? "
        + "WHERE name = ? AND lock_until <= " + NOW;
    static final String LEAST = "locked_at + cast(? as interval)";
    static final String UNLOCK = "UPDATE shedlock SET lock_until = CASE WHEN " + LEAST
        + " > " + NOW + " THEN " + LEAST + " ELSE " + NOW + " END "
        + "WHERE name = ? AND locked_by = ?";

    public static void main(String[] url) throws Exception {
        String user = System.getenv("PGUSER"), password = System.getenv("PGPASSWORD");
        try (Connection connection =
                DriverManager.getConnection(url[0], user, password)) {
            BufferedReader input =
                new BufferedReader(new InputStreamReader(System.in));
            System.out.println("ready");
            for (String line; (line = input.readLine()) != null;) {
                boolean isPair = line.equals("pair");
                long began = System.nanoTime();
                int found = send(
                    connection, LOCK, "60000 milliseconds", "java",
                    isPair ? "java" : "held 1");
                if (isPair) {
                    found += send(
                        connection, UNLOCK, "0 milliseconds", "0 milliseconds",
                        "java", "java");
                }
                long took = System.nanoTime() - began;
                System.out.println(found == (isPair ? 2 : 0) ? took : "failed");
            }
        }
    }

    static int send(Connection connection, String sql, String... values)
            throws SQLException {
        try (PreparedStatement statement = connection.prepareStatement(sql)) {
            for (int index = 0; index < values.length; index++) {
                statement.setString(index + 1, values[index]);
            }
            return statement.executeUpdate();
        }
    }
}
